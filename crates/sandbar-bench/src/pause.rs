use std::time::Instant;

use sandbar::{Command, GuestPath, SandboxExt as _};

use crate::bed::{Bed, create};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 50;
/// MiB that a process in the sandbox holds in memory.
const SIZES: [u32; 2] = [1, 512];

/// To sleep, and awake again until something is answered.
pub(crate) fn both_ways(bed: &Bed) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for mib in SIZES {
        let (mut pause, mut resume) = (Samples::default(), Samples::default());
        bed.runtime.block_on(cycles(bed, mib, &mut pause, &mut resume))?;
        let row = |what, ours| Row::new("pause", what, "ms", ours, Peer::none(), Bar::AtMost(5.0));
        rows.push(row(format!("pause of a sandbox with {mib} MiB in memory"), pause));
        rows.push(row(format!("resume of it until its first answer, {mib} MiB in memory"), resume));
    }
    Ok(rows)
}

async fn cycles(bed: &Bed, mib: u32, pause: &mut Samples, resume: &mut Samples) -> Result<(), String> {
    let text = |error: sandbar::Error| error.to_string();
    let sandbox = create(&bed.provider).await?;
    // What has no end of a line is held whole; the end of `head` shows that it is.
    let hold = format!(
        "(head -c {mib}M /dev/zero; touch /tmp/held; sleep 100000) | tail >/dev/null 2>&1 & until [ -e /tmp/held ]; do sleep 0.01; done"
    );
    let output = sandbox.commands().run(&Command::shell(hold)).await.map_err(text)?;
    if !output.status.is_success() {
        return Err(format!("{mib} MiB were not held: {:?}", output.status));
    }
    let root = GuestPath::new("/").map_err(text)?;
    let pausing = sandbox.require_pausing().map_err(text)?;
    for _ in 0..bed.rounds(ROUNDS) {
        let begun = Instant::now();
        let outcome = pausing.hibernate().await.map_err(text);
        pause.took(begun.elapsed(), outcome);
        let begun = Instant::now();
        let woken = pausing.resume().await.map_err(text)?;
        let answer = sandbox.files().stat(&root).await.map_err(text);
        let is_same =
            if woken.processes_preserved { Ok(()) } else { Err("its processes are gone".to_owned()) };
        resume.took(begun.elapsed(), answer.and(is_same));
    }
    sandbox.destroy().await.map(drop).map_err(text)
}
