use super::plain;
use super::served::Served;
use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 10;
/// Bytes of the file: half a second at the bar.
const BYTES: u64 = 256 << 20;
/// Where it is in the sandbox.
const TARGET: &str = "/files?path=/tmp/large&username=user";

/// A large file into a sandbox and out of it, over the server.
pub(crate) fn both_ways(bed: &Bed) -> Result<Vec<Row>, String> {
    let served = Served::start(bed)?;
    let guest = bed.runtime.block_on(served.create())?;
    let copy = bed.folder().join("plain-copy");
    let address = plain::serve(copy.clone())?;
    let mut samples = [(); 4].map(|()| Samples::rates());
    let [up, plain_up, down, plain_down] = &mut samples;
    let binary = [("content-type", "application/octet-stream")];
    let headers = [&guest.headers()[..], &binary].concat();
    for _ in 0..bed.rounds(ROUNDS) {
        note(plain_up, plain::upload(address, "/", &binary, BYTES));
        note(up, plain::upload(served.address, TARGET, &headers, BYTES));
        note(plain_down, plain::download(address, "/", &[], BYTES));
        note(down, plain::download(served.address, TARGET, &guest.headers(), BYTES));
    }
    let _ = std::fs::remove_file(copy);
    let [up, plain_up, down, plain_down] = samples;
    let row = |what: &str, ours, peer: &'static str, theirs| {
        Row::new("server-file", what, "MB/s", ours, Peer::measured(peer, theirs), Bar::AtLeast(500.0))
    };
    Ok(vec![
        row(
            "upload of 256 MiB over the server",
            up,
            "the same client to a server that only writes it into a file, over loopback",
            plain_up,
        ),
        row(
            "download of 256 MiB over the server",
            down,
            "the same client from a server that only reads it from a file, over loopback",
            plain_down,
        ),
    ])
}

pub(super) fn note(samples: &mut Samples, outcome: Result<f64, String>) {
    match outcome {
        Ok(value) => samples.value(value, Ok(())),
        Err(why) => samples.value(f64::NAN, Err::<(), _>(why)),
    }
}
