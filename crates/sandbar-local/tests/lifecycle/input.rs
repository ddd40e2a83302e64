//! Much input, and input that nobody takes.

use std::time::{Duration, Instant};

use sandbar_core::{Command, ErrorKind, RunOptions, SandboxExt, Signal, SpawnOptions, StdinMode};

use crate::support::{Bed, create};

#[tokio::test]
async fn much_input_arrives_whole_and_a_closed_one_is_told() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    // More than one message, and no multiple of anything.
    let input: Vec<u8> = (0..5_000_003_u32).map(|number| (number % 251) as u8).collect();
    let options = RunOptions::default().with_stdin(input.clone());
    let options = options.with_output_limit(8 << 20);
    let output = sandbox.commands().run_opts(&Command::new("cat"), options).await.expect("an output");
    assert!(output.stdout[..] == input[..], "{output:?}");

    let processes = sandbox.require_processes().expect("processes");
    let open = SpawnOptions::default().with_stdin(StdinMode::Open);
    let process =
        processes.spawn(&Command::shell("exec 0<&-; exec sleep 60"), open).await.expect("a process");
    let end = Instant::now() + Duration::from_secs(10);
    let refused = loop {
        match process.control.write(input.clone().into()).await {
            Err(error) => break error,
            Ok(()) => assert!(Instant::now() < end, "nobody reads that"),
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
    // The next call works.
    assert!(process.control.signal(Signal::KILL).await.expect("signalled"));
    let closed =
        processes.spawn(&Command::new("sleep").arg("60"), SpawnOptions::default()).await.expect("a process");
    let refused = closed.control.write(input.into()).await.expect_err("its input is not open");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused:?}");
    sandbox.destroy().await.expect("destroyed");
}
