use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use futures::future::join_all;
use sandbar::{Command, ProviderExt as _, Query, Sandbox};

use crate::bed::{Bed, finish};
use crate::memory;
use crate::peer::{BWRAP, bwrap, no_bwrap};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

/// Sandboxes begun at the same time.
const AT_ONCE: usize = 100;
/// How often.
const ROUNDS: usize = 5;
/// Sandboxes that do nothing, side by side.
const IDLE: usize = 500;
/// As many of the first and of the last creations are compared.
const ENDS: usize = 50;
/// How often they are listed.
const LISTINGS: usize = 20;

const MIB: f64 = 1_048_576.0;

/// From nothing to the last answer of a hundred.
pub(crate) fn at_once(bed: &Bed) -> Result<Vec<Row>, String> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let absent = no_bwrap();
    for _ in 0..if bed.quick { 1 } else { ROUNDS } {
        if absent.is_none() {
            let begun = Instant::now();
            let outcome = all_at_once();
            theirs.took(begun.elapsed(), outcome);
        }
        let begun = Instant::now();
        let up = bed.runtime.block_on(join_all((0..AT_ONCE).map(|_| answering(bed))));
        let took = begun.elapsed();
        let failed = up.iter().find_map(|outcome| outcome.as_ref().err().cloned());
        ours.took(took, failed.map_or(Ok(()), Err));
        let gone = up.into_iter().flatten().map(|sandbox| async move { sandbox.destroy().await });
        let gone = bed.runtime.block_on(join_all(gone));
        gone.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    }
    let peer = absent.map_or_else(|| Peer::measured(BWRAP, theirs), Peer::Absent);
    let what = format!("{AT_ONCE} created at once, until each has run `true`");
    Ok(vec![Row::new("crowd", what, "ms", ours, peer, Bar::AtMost(1500.0))])
}

/// What many cost that do nothing.
pub(crate) fn idle(bed: &Bed) -> Result<Vec<Row>, String> {
    let count = if bed.quick { IDLE / 10 } else { IDLE };
    let ends = ENDS.min(count / 2);
    let (mut first, mut last, mut listing, mut process, mut memory) = Default::default();
    let mut all: Vec<Arc<dyn Sandbox>> = Vec::new();
    for number in 0..count {
        let begun = Instant::now();
        let made = bed.runtime.block_on(bed.create());
        let took = begun.elapsed();
        let samples: Option<&mut Samples> = match number {
            _ if number < ends => Some(&mut first),
            _ if number >= count - ends => Some(&mut last),
            _ => None,
        };
        if let Some(samples) = samples {
            samples.took(took, made.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        all.push(made?);
    }
    for _ in 0..LISTINGS {
        let begun = Instant::now();
        let listed = bed.runtime.block_on(bed.provider.list_all(Query::default()));
        Samples::took(&mut listing, begun.elapsed(), counted(listed.map(|list| list.len()), count));
        let begun = Instant::now();
        let outcome = finish(bed.command_line().arg("ls"));
        Samples::took(&mut process, begun.elapsed(), outcome);
    }
    match memory::per_sandbox(count) {
        Ok(bytes) => Samples::value(&mut memory, bytes / MIB, Ok(())),
        Err(why) => Samples::value(&mut memory, 0.0, Err::<(), _>(why)),
    }
    let gone = bed.runtime.block_on(join_all(all.iter().map(|sandbox| sandbox.destroy())));
    gone.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;

    let first = Peer::measured("the first ones", first);
    Ok(vec![
        Row::new(
            "idle",
            format!("create, the last {ends} of {count}"),
            "ms",
            last,
            first,
            Bar::AtMostTimes(1.25),
        ),
        Row::new("idle", format!("list of {count}, library"), "ms", listing, Peer::none(), Bar::AtMost(50.0)),
        Row::new(
            "idle",
            format!("the process `sandbar ls` of {count}"),
            "ms",
            process,
            Peer::none(),
            Bar::AtMost(50.0),
        ),
        Row::new(
            "idle",
            format!("memory of an idle one, shim and agent (PSS, mean of {count})"),
            "MiB",
            memory,
            Peer::none(),
            Bar::AtMost(6.0),
        ),
    ])
}

async fn answering(bed: &Bed) -> Result<Arc<dyn Sandbox>, String> {
    let sandbox = bed.create().await?;
    let output = sandbox.commands().run(&Command::new("true")).await.map_err(|error| error.to_string())?;
    if output.status.is_success() {
        Ok(sandbox)
    } else {
        Err(format!("`true` ended with {:?}", output.status))
    }
}

fn all_at_once() -> Result<(), String> {
    let started: Vec<_> = (0..AT_ONCE).map(|_| bwrap().stdin(Stdio::null()).spawn()).collect();
    let mut outcome = Ok(());
    for child in started {
        match child.and_then(|mut child| child.wait()) {
            Ok(status) if status.success() => {}
            Ok(status) => outcome = Err(format!("bwrap: {status}")),
            Err(why) => outcome = Err(format!("bwrap: {why}")),
        }
    }
    outcome
}

fn counted(found: Result<usize, sandbar::Error>, expected: usize) -> Result<(), String> {
    match found {
        Ok(found) if found == expected => Ok(()),
        Ok(found) => Err(format!("{found} were listed of {expected}")),
        Err(error) => Err(error.to_string()),
    }
}
