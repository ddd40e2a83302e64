use std::time::{Duration, Instant};

use sandbar::Command;

use crate::bed::{Bed, finish};
use crate::peer::{BWRAP, bwrap, no_bwrap};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 300;
/// Rounds before anything is noted: caches of the kernel and the template's skeleton.
const WARM_UP: usize = 10;
/// Between two rounds, so that what one of them left for the kernel to do in the background is not counted to the next, whoever's it is.
const REST: Duration = Duration::from_millis(5);

/// Create, run `true`, destroy, through the library.
pub(crate) fn library(bed: &Bed) -> Result<Vec<Row>, String> {
    in_turns(bed, "create", "create + `true` + destroy, library", Bar::AtMostTimes(1.5), || {
        bed.runtime.block_on(cycle(bed))
    })
}

/// A process of the command line that does the same.
pub(crate) fn command_line(bed: &Bed) -> Result<Vec<Row>, String> {
    in_turns(bed, "run", "the process `sandbar run -- true`", Bar::AtMostTimes(3.0), || {
        finish(bed.command_line().args(["run", "--", "true"]))
    })
}

async fn cycle(bed: &Bed) -> Result<(), String> {
    let sandbox = bed.create().await?;
    let output = sandbox.commands().run(&Command::new("true")).await.map_err(|error| error.to_string());
    let destroyed = sandbox.destroy().await.map_err(|error| error.to_string());
    if !output?.status.is_success() {
        return Err("`true` failed".into());
    }
    if destroyed? { Ok(()) } else { Err("it was gone before it was destroyed".into()) }
}

fn in_turns(
    bed: &Bed,
    name: &'static str,
    what: &str,
    bar: Bar,
    mut work: impl FnMut() -> Result<(), String>,
) -> Result<Vec<Row>, String> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let absent = no_bwrap();
    for _ in 0..WARM_UP {
        work()?;
    }
    for _ in 0..bed.rounds(ROUNDS) {
        if absent.is_none() {
            let begun = Instant::now();
            let outcome = finish(&mut bwrap());
            theirs.took(begun.elapsed(), outcome);
            std::thread::sleep(REST);
        }
        let begun = Instant::now();
        let outcome = work();
        ours.took(begun.elapsed(), outcome);
        std::thread::sleep(REST);
    }
    let peer = absent.map_or_else(|| Peer::measured(BWRAP, theirs), Peer::Absent);
    Ok(vec![Row::new(name, what, "ms", ours, peer, bar)])
}
