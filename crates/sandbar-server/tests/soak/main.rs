//! `sandbar serve` as a process of its own, for a long time, with many at once and with nobody's good will. `$SANDBAR_SOAK` makes them long, as
//! `cargo xtask soak server-crowd server-kill server-hostile` does; else they are as short as shows that they work.

#[path = "../common/mod.rs"]
mod common;

mod api;
mod crowd;
mod hostile;
mod kill;
mod life;
mod look;
mod served;

/// The size of a long run, if this is one.
fn soak() -> Option<u64> {
    std::env::var("SANDBAR_SOAK").ok().map(|size| size.parse().expect("SANDBAR_SOAK is a number"))
}
