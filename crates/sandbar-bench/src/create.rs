use std::time::{Duration, Instant};

use sandbar::Command;

use crate::bed::{Bed, finish};
use crate::peer::{BWRAP, bwrap, no_bwrap};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 150;
/// Rounds before anything is noted: caches of the kernel and the template's skeleton.
const WARM_UP: usize = 10;
/// Between two rounds, so that what one of them left to be done in the background (the kernel's ends of namespaces, and the provider's preparation of
/// the next sandbox) is not counted to the next, whoever's it is.
const REST: Duration = Duration::from_millis(10);

/// Create, run `true`, destroy, through the library.
pub(crate) fn library(bed: &Bed) -> Result<Vec<Row>, String> {
    let mut parts: [Samples; 3] = Default::default();
    let (ours, peer) = in_turns(bed, REST, || bed.runtime.block_on(cycle(bed, Some(&mut parts))))?;
    let what = "create + `true` + destroy, library, the next one prepared in between";
    let mut rows = vec![Row::new("create", what, "ms", ours, peer, Bar::AtMostTimes(1.5))];
    for (what, part) in ["of it, create", "of it, `true`", "of it, destroy"].into_iter().zip(parts) {
        rows.push(Row::new("create", what, "ms", part, Peer::none(), Bar::None));
    }
    let (ours, peer) = in_turns(bed, Duration::ZERO, || bed.runtime.block_on(cycle(bed, None)))?;
    let what = "the same without a pause in between";
    rows.push(Row::new("create", what, "ms", ours, peer, Bar::None));
    Ok(rows)
}

/// A process of the command line that does the same.
pub(crate) fn command_line(bed: &Bed) -> Result<Vec<Row>, String> {
    let (ours, peer) = in_turns(bed, REST, || finish(bed.command_line().args(["run", "--", "true"])))?;
    Ok(vec![Row::new("run", "the process `sandbar run -- true`", "ms", ours, peer, Bar::AtMostTimes(3.0))])
}

/// One life of a sandbox, and how long its parts took.
async fn cycle(bed: &Bed, parts: Option<&mut [Samples; 3]>) -> Result<(), String> {
    let begun = Instant::now();
    let sandbox = bed.create().await?;
    let created = Instant::now();
    let output = sandbox.commands().run(&Command::new("true")).await.map_err(|error| error.to_string());
    let ran = Instant::now();
    let destroyed = sandbox.destroy().await.map_err(|error| error.to_string());
    if let Some([create, run, destroy]) = parts {
        create.took(created - begun, Ok(()));
        run.took(ran - created, Ok(()));
        destroy.took(ran.elapsed(), Ok(()));
    }
    if !output?.status.is_success() {
        return Err("`true` failed".into());
    }
    if destroyed? { Ok(()) } else { Err("it was gone before it was destroyed".into()) }
}

fn in_turns(
    bed: &Bed,
    rest: Duration,
    mut work: impl FnMut() -> Result<(), String>,
) -> Result<(Samples, Peer), String> {
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
            std::thread::sleep(rest);
        }
        let begun = Instant::now();
        let outcome = work();
        ours.took(begun.elapsed(), outcome);
        std::thread::sleep(rest);
    }
    Ok((ours, absent.map_or_else(|| Peer::measured(BWRAP, theirs), Peer::Absent)))
}
