use std::io::Read;
use std::process::{Command as HostCommand, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use sandbar::{Command, Files, GuestPath, ProcessEvent, ReadOptions, Sandbox, SandboxExt as _, SpawnOptions};

use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 10;
/// Bytes per round: about a second at the bar, and a file of it fits in memory several times.
const BYTES: u64 = 256 << 20;

/// Output of a command, through the guest's protocol.
pub(crate) fn stdout(bed: &Bed) -> Result<Vec<Row>, String> {
    let sandbox = bed.runtime.block_on(bed.create())?;
    let (mut ours, mut theirs) = (Samples::rates(), Samples::rates());
    for _ in 0..bed.rounds(ROUNDS) {
        let begun = Instant::now();
        let outcome = through_pipe(HostCommand::new("head").args(["-c", &BYTES.to_string(), "/dev/zero"]));
        theirs.value(rate(begun.elapsed()), outcome);
        let begun = Instant::now();
        let outcome = bed.runtime.block_on(output(sandbox.as_ref()));
        ours.value(rate(begun.elapsed()), outcome);
    }
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let peer = Peer::measured("the same command on the host, through a pipe", theirs);
    Ok(vec![Row::new("stdout", "standard output of a command", "MB/s", ours, peer, Bar::AtLeast(200.0))])
}

/// A file out of a sandbox.
pub(crate) fn download(bed: &Bed) -> Result<Vec<Row>, String> {
    let sandbox = bed.runtime.block_on(bed.create())?;
    let command = Command::shell(format!("head -c {BYTES} /dev/zero > /tmp/file"));
    let made = bed.runtime.block_on(sandbox.commands().run(&command)).map_err(|error| error.to_string())?;
    if !made.status.is_success() {
        return Err(format!("the file could not be made: {:?}", made.status));
    }
    let copy = bed.folder().join("file");
    std::fs::write(&copy, vec![0; usize::try_from(BYTES).unwrap_or(0)]).map_err(|why| why.to_string())?;
    let (mut ours, mut theirs) = (Samples::rates(), Samples::rates());
    for _ in 0..bed.rounds(ROUNDS) {
        let begun = Instant::now();
        let outcome = through_pipe(HostCommand::new("cat").arg(&copy));
        theirs.value(rate(begun.elapsed()), outcome);
        let begun = Instant::now();
        let outcome = bed.runtime.block_on(read(sandbox.files()));
        ours.value(rate(begun.elapsed()), outcome);
    }
    let _ = std::fs::remove_file(copy);
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let peer = Peer::measured("`cat` of such a file on the host, through a pipe", theirs);
    Ok(vec![Row::new("download", "download of a file", "MB/s", ours, peer, Bar::AtLeast(1000.0))])
}

async fn output(sandbox: &dyn Sandbox) -> Result<(), String> {
    let processes = sandbox.require_processes().map_err(|error| error.to_string())?;
    let command = Command::new("head").arg("-c").arg(BYTES.to_string()).arg("/dev/zero");
    let mut process =
        processes.spawn(&command, SpawnOptions::new()).await.map_err(|error| error.to_string())?;
    let mut got = 0;
    while let Some(event) = process.events.next().await {
        match event.map_err(|error| error.to_string())? {
            ProcessEvent::Stdout(bytes) => got += bytes.len() as u64,
            ProcessEvent::Exit(exit) if exit.status.is_success() => return whole(got),
            ProcessEvent::Exit(exit) => return Err(format!("`head` ended with {:?}", exit.status)),
            _ => {}
        }
    }
    Err("the process has no end".into())
}

async fn read(files: &dyn Files) -> Result<(), String> {
    let path = GuestPath::new("/tmp/file").map_err(|error| error.to_string())?;
    let mut file = files.read_opts(&path, ReadOptions::default()).await.map_err(|error| error.to_string())?;
    let mut got = 0;
    while let Some(bytes) = file.body.next().await {
        got += bytes.map_err(|error| error.to_string())?.len() as u64;
    }
    whole(got)
}

fn through_pipe(command: &mut HostCommand) -> Result<(), String> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|why| why.to_string())?;
    let mut chunk = vec![0; 64 << 10];
    let mut got = 0;
    if let Some(mut pipe) = child.stdout.take() {
        loop {
            match pipe.read(&mut chunk).map_err(|why| why.to_string())? {
                0 => break,
                bytes => got += bytes as u64,
            }
        }
    }
    child.wait().map_err(|why| why.to_string())?;
    whole(got)
}

fn whole(got: u64) -> Result<(), String> {
    if got == BYTES { Ok(()) } else { Err(format!("{got} bytes came instead of {BYTES}")) }
}

/// Millions of bytes a second.
fn rate(took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
    let bytes = BYTES as f64;
    bytes / took.as_secs_f64() / 1e6
}
