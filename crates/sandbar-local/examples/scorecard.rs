//! Prints the egress scorecard from a run of the whole leak suite in a rig. `cargo xtask gen` makes `docs/egress-scorecard.md` with it.

#[path = "../tests/egress/full.rs"]
mod full;

use sandbar_local::{LocalConfig, LocalProvider, Spare};
use sandbar_rig::Rig;

fn main() {
    let rig = Rig::connect();
    let allowed = full::outside(&rig);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = LocalConfig::new().with_home(folder.path().join("home")).with_spare(Spare::None);
    let provider = LocalProvider::open(config).expect("the provider opens");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let verdict = runtime.expect("a runtime").block_on(full::look(&provider, &allowed));
    print!("{}", sandbar_local::scorecard_document(&verdict));
}
