use std::io::{BufRead, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::tried::{Said, Tried};
use super::{dns, kernel, tcp};

/// Attempts at the same time: each mostly waits.
const THREADS: usize = 16;
/// Most bytes of input: the whole leak suite is a tenth of it.
pub(crate) const MAX_INPUT: u64 = 8 * 1024 * 1024;

/// An attempt with its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbered {
    /// The number.
    pub(crate) id: u32,
    /// The attempt.
    pub(crate) attempt: Attempt,
}

/// Makes the attempts, side by side, and tells of each as soon as it is over.
pub(crate) fn try_all(attempts: &[Numbered], tell: impl FnMut(Tried) + Send) {
    let next = AtomicUsize::new(0);
    let tell = Mutex::new(tell);
    let worker = || {
        while let Some(numbered) = attempts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let begun = Instant::now();
            let (outcome, detail) = try_one(&numbered.attempt);
            let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut tell = tell.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            tell(Tried { id: numbered.id, outcome, detail, millis });
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..THREADS.min(attempts.len()) {
            // Where there are to be no more threads, those that there are do the work.
            if std::thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
}

/// Reads a list of attempts and writes a line for each.
pub(super) fn serve(input: impl BufRead, mut output: impl Write + Send) -> std::io::Result<()> {
    let attempts: Vec<Numbered> = serde_json::from_reader(input.take(MAX_INPUT))?;
    // What a program starts with is seen before it opens anything itself.
    let (first, then): (Vec<_>, Vec<_>) =
        attempts.into_iter().partition(|numbered| numbered.attempt == Attempt::Inherited);
    let mut tell = |tried: Tried| {
        let Ok(mut line) = serde_json::to_vec(&tried) else { return };
        line.push(b'\n');
        // Without its line an attempt counts as not made, which is what the reader has to think.
        let _ = output.write_all(&line).and_then(|()| output.flush());
    };
    try_all(&first, &mut tell);
    try_all(&then, &mut tell);
    Ok(())
}

fn try_one(attempt: &Attempt) -> Said {
    match attempt {
        Attempt::Tcp(order) => tcp::attempt(order),
        Attempt::Udp { to, send } => kernel::udp(*to, &send.0),
        Attempt::Dns { server, transport, question, expect } => {
            dns::attempt(*server, *transport, question, *expect)
        }
        Attempt::Socket(kind) => kernel::socket(kind),
        Attempt::Route { message } => kernel::route(&message.0),
        Attempt::Unix { path, name, token } => kernel::unix(path.as_deref(), name.as_ref(), token),
        Attempt::Open { path } => kernel::open(path),
        Attempt::Bind { to } => kernel::bind(*to),
        Attempt::Inherited => kernel::inherited(),
        Attempt::Enter { path } => kernel::enter(path),
    }
}
