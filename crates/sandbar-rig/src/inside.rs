use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::env;

/// Ends the rig with the thread that started it, so that a killed test leaves none.
pub const TIED: &str = "--tied";
/// How long a test may take in a rig of its own.
const LIMIT: Duration = Duration::from_secs(600);
/// Between two looks at a test that runs.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `body` in a rig: at once where there is one round this process, else by running the test `name` (as the test runner spells it,
/// with its modules) of this very executable again in a rig of its own.
#[track_caller]
pub fn inside<T>(name: &str, body: impl FnOnce() -> T) {
    if env::folder().is_some() {
        body();
        return;
    }
    let program = std::env::current_exe().expect("a test knows its executable");
    let mut command = Command::new(executable());
    command.args(["run", TIED, "--"]).arg(program);
    command.args([name, "--exact", "--include-ignored", "--nocapture", "--test-threads=1"]);
    let (passed, output) = run(command);
    // A name that no test has passes in silence otherwise.
    let ran = output.contains("test result: ok. 1 passed");
    assert!(passed && ran, "`{name}` in a rig of its own did not pass (is that its whole name?):\n{output}");
}

#[track_caller]
fn run(mut command: Command) -> (bool, String) {
    let (mut reader, writer) = std::io::pipe().expect("a pipe can be made");
    command.stdin(Stdio::null()).stdout(writer.try_clone().expect("a pipe can be cloned")).stderr(writer);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("the rig could not be started: {e}"));
    // Holds the writing ends, without which the reader sees the end.
    drop(command);
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break Some(status);
        }
        if Instant::now() >= end {
            // All that is in the rig ends with it.
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(LOOK);
    };
    let output = reading.join().expect("reading does not panic");
    match status {
        Some(status) => (status.success(), output),
        None => (false, format!("{output}\nit took more than {LIMIT:?}")),
    }
}

/// The rig's executable: named, or beside the folder of the test that looks for it.
#[track_caller]
fn executable() -> PathBuf {
    if let Some(path) = env::executable() {
        return path.into();
    }
    let program = std::env::current_exe().expect("a test knows its executable");
    let beside = program.ancestors().skip(1).take(2).map(|folder| folder.join("sandbar-rig"));
    let found = beside.into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("no `sandbar-rig` beside the tests; run `cargo build -p sandbar-rig` first")
    })
}
