use std::time::{Duration, Instant};

use futures::future::join_all;
use sandbar::{Command, Sandbox};

use super::client::Client;
use super::served::{Guest, Served};
use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 500;
/// Rounds that do not count: caches, connections into the sandbox.
const WARM_UP: usize = 20;
/// How long requests are sent for one value of a throughput, and in quick runs.
const WINDOW: Duration = Duration::from_secs(3);
const QUICK_WINDOW: Duration = Duration::from_millis(500);
/// Values of a throughput.
const WINDOWS: usize = 5;
/// Requests under way, and sandboxes they are spread over.
const CROWDS: [(usize, usize); 3] = [(1, 1), (16, 1), (16, 4)];

const TRUE: &str = "true";

/// `commands.run("true")` over the server, and the library's in the same sandbox.
pub(crate) fn latency(bed: &Bed) -> Result<Vec<Row>, String> {
    let served = Served::start(bed)?;
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    bed.runtime.block_on(async {
        let guest = served.create().await?;
        let mut client = Client::connect(served.address).await?;
        for turn in 0..bed.rounds(ROUNDS) + WARM_UP {
            let begun = Instant::now();
            let outcome = run(&*guest.sandbox).await;
            let direct = (begun.elapsed(), outcome);
            let begun = Instant::now();
            let outcome = client.run(&guest.headers(), TRUE).await;
            if turn >= WARM_UP {
                ours.took(begun.elapsed(), outcome);
                theirs.took(direct.0, direct.1);
            }
        }
        Ok::<_, String>(())
    })?;
    let peer = Peer::measured("`commands().run(\"true\")` of the library, in the same sandbox", theirs);
    let what = "`true` in a running sandbox over the server, by a client that does nothing else";
    Ok(vec![Row::new("server-run", what, "ms", ours, peer, Bar::AtMostMore(1.0))])
}

/// As many as there can be in a second.
pub(crate) fn throughput(bed: &Bed) -> Result<Vec<Row>, String> {
    let served = Served::start(bed)?;
    let mut rows = Vec::new();
    for (at_once, sandboxes) in CROWDS {
        let (mut ours, mut theirs) = (Samples::rates(), Samples::rates());
        bed.runtime.block_on(async {
            let guests = join_all((0..sandboxes).map(|_| served.create())).await;
            let guests = guests.into_iter().collect::<Result<Vec<_>, _>>()?;
            let clients = join_all((0..at_once).map(|_| Client::connect(served.address))).await;
            let mut clients = clients.into_iter().collect::<Result<Vec<_>, _>>()?;
            let window = if bed.quick { QUICK_WINDOW } else { WINDOW };
            for turn in 0..=if bed.quick { 1 } else { WINDOWS } {
                let begun = Instant::now();
                let through = join_all((0..at_once).map(|n| {
                    let guest = &guests[n % sandboxes];
                    counted(begun + window, async || run(&*guest.sandbox).await)
                }));
                let of_library = rate(through.await, begun);
                let begun = Instant::now();
                let through = join_all(clients.iter_mut().enumerate().map(|(n, client)| {
                    let guest: &Guest = &guests[n % sandboxes];
                    counted(begun + window, async || client.run(&guest.headers(), TRUE).await)
                }));
                let of_server = rate(through.await, begun);
                // The first of each warms up.
                if turn > 0 {
                    for (samples, (rate, outcome)) in [(&mut theirs, of_library), (&mut ours, of_server)] {
                        samples.value(rate, outcome);
                    }
                }
            }
            for guest in guests {
                guest.sandbox.destroy().await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        })?;
        let of = if sandboxes == 1 { "one sandbox".to_owned() } else { format!("{sandboxes} sandboxes") };
        let what = format!("`true` over the server, {at_once} at once in {of}");
        let peer = Peer::measured("the library, as many at once", theirs);
        let bar = if at_once == 1 { Bar::None } else { Bar::AtLeast(1000.0) };
        rows.push(Row::new("server-throughput", what, "1/s", ours, peer, bar));
    }
    Ok(rows)
}

async fn run(sandbox: &dyn Sandbox) -> Result<(), String> {
    let output = sandbox.commands().run(&Command::new(TRUE)).await.map_err(|error| error.to_string())?;
    if output.status.is_success() { Ok(()) } else { Err(format!("`true` ended with {:?}", output.status)) }
}

/// How often something is done until `end`, one after another.
async fn counted(end: Instant, mut work: impl AsyncFnMut() -> Result<(), String>) -> Result<u32, String> {
    let mut count = 0;
    while Instant::now() < end {
        work().await?;
        count += 1;
    }
    Ok(count)
}

fn rate(counts: Vec<Result<u32, String>>, begun: Instant) -> (f64, Result<(), String>) {
    let seconds = begun.elapsed().as_secs_f64();
    match counts.into_iter().sum::<Result<u32, String>>() {
        Ok(count) => (f64::from(count) / seconds, Ok(())),
        Err(why) => (f64::NAN, Err(why)),
    }
}
