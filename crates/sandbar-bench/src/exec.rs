use std::process::{Command as HostCommand, Stdio};
use std::time::Instant;

use sandbar::Command;

use crate::bed::{Bed, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 500;

/// `true` in a sandbox that runs, and `true` on the host.
pub(crate) fn exec(bed: &Bed) -> Result<Vec<Row>, String> {
    let sandbox = bed.runtime.block_on(bed.create())?;
    let run = || {
        let output = bed.runtime.block_on(sandbox.commands().run(&Command::new("true")));
        match output {
            Ok(output) if output.status.is_success() => Ok(()),
            Ok(output) => Err(format!("`true` ended with {:?}", output.status)),
            Err(error) => Err(error.to_string()),
        }
    };
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    run()?;
    for _ in 0..bed.rounds(ROUNDS) {
        let begun = Instant::now();
        let outcome = finish(&mut host_true());
        theirs.took(begun.elapsed(), outcome);
        let begun = Instant::now();
        let outcome = run();
        ours.took(begun.elapsed(), outcome);
    }
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let peer = Peer::measured("`true` on the host, spawned and waited for", theirs);
    let what = "`commands().run(\"true\")` in a running sandbox";
    Ok(vec![Row::new("exec", what, "ms", ours, peer, Bar::AtMostTimes(2.0))])
}

fn host_true() -> HostCommand {
    let mut command = HostCommand::new("true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
