use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest time that anything here waits for something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A data folder of a test's own and a current folder, and the executable to use them with.
pub(crate) struct Home {
    /// Made by the product: it wants to be the only one who can look into it.
    data: PathBuf,
    current: TempDir,
    _holder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = |prefix| tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder");
        let holder = folder("sandbar-home-");
        Self { data: holder.path().join("data"), current: folder("sandbar-cwd-"), _holder: holder }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The current folder of every invocation.
    pub(crate) fn current(&self) -> &Path {
        self.current.path()
    }

    /// `sandbar ARGUMENTS…`, with nothing on standard input.
    pub(crate) fn sandbar(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command.args(arguments).env("SANDBAR_HOME", &self.data).current_dir(self.current.path());
        for name in [
            "SANDBAR_URL",
            "SANDBAR_HELPER",
            "SANDBAR_AUDIT",
            "SANDBAR_ACTOR",
            "E2B_API_KEY",
            "E2B_API_URL",
            "E2B_DOMAIN",
            "E2B_SANDBOX_URL",
            "E2B_TEMPLATE_ID",
            "TRACEPARENT",
            "TRACESTATE",
            "NO_COLOR",
            "CLICOLOR_FORCE",
            "COLUMNS",
            "RUST_BACKTRACE",
        ] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// As [`Home::sandbar`], started by `prefix`, such as `sh -c SCRIPT sh`, which is followed by the executable and its arguments.
    pub(crate) fn sandbar_by(&self, prefix: &[&str], arguments: &[&str]) -> Command {
        let own = self.sandbar(arguments);
        let mut command = Command::new(prefix[0]);
        command.args(&prefix[1..]).arg(own.get_program()).args(own.get_args()).current_dir(self.current());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// As [`Home::sandbar`], with signals as a terminal has them, also where the tests themselves are run in the background.
    pub(crate) fn sandbar_in_foreground(&self, arguments: &[&str]) -> Command {
        self.sandbar_by(&["env", "--default-signal=HUP,INT,TERM"], arguments)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.sandbar(arguments).output().expect("the executable starts")
    }

    /// Runs it with `input` on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: Vec<u8>) -> Output {
        let mut child = start(self.sandbar(arguments).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().expect("a pipe");
        // A command that reads only some of it breaks the pipe, and may.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("the executable ends");
        writer.join().expect("the writer ends");
        output
    }

    /// Runs it, expects success, and answers its standard output without the last line end.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(code(&output), 0, "sandbar {arguments:?}: {}", both(&output));
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    /// Runs it, expects success, and answers the JSON on its standard output.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(arguments)).expect("JSON")
    }

    /// A sandbox that ends with this.
    pub(crate) fn create(&self, options: &[&str]) -> String {
        self.text(&[&["create"], options].concat())
    }

    /// How many sandboxes there are.
    pub(crate) fn count(&self) -> usize {
        self.json(&["ls", "--json"]).as_array().expect("an array").len()
    }

    /// Checks that nothing of any sandbox is left in the data folder.
    pub(crate) fn assert_empty(&self) {
        let left = self.left();
        assert!(left.is_empty(), "left in the data folder: {left:?}");
    }

    /// What is in the data folder of any sandbox.
    pub(crate) fn left(&self) -> Vec<PathBuf> {
        ["sandboxes", "trash", "names", "ids"]
            .iter()
            .filter_map(|folder| std::fs::read_dir(self.data.join(folder)).ok())
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect()
    }

    /// One invocation as a text for a snapshot.
    pub(crate) fn transcript(&self, arguments: &[&str]) -> String {
        self.transcribe(arguments, &self.run(arguments))
    }

    /// As [`Home::transcript`], of an invocation that was made.
    pub(crate) fn transcribe(&self, arguments: &[&str], output: &Output) -> String {
        let text = format!(
            "$ sandbar {}\n--- exit {}\n--- stdout\n{}--- stderr\n{}",
            arguments.join(" "),
            code(output),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let text = text.replace(self.current().to_str().expect("text"), "[current]");
        text.replace(self.data().to_str().expect("text"), "[data]").replace('\x1b', "[escape]")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let listed = self.run(&["ls", "--json"]);
        let records: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        for record in records.as_array().into_iter().flatten() {
            self.run(&["destroy", record["id"].as_str().unwrap_or_default()]);
        }
        if !std::thread::panicking() {
            self.assert_empty();
        }
    }
}

pub(crate) fn start(command: &mut Command) -> Child {
    command.spawn().expect("the executable starts")
}

/// The exit code; an end by a signal is none.
pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", both(output)))
}

/// Status and both outputs, for a failed test's message.
pub(crate) fn both(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Sends a signal to a child.
pub(crate) fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(status.expect("kill starts").success());
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process with this word in its command line lives on this machine, inside a sandbox or not.
pub(crate) fn lives(word: &str) -> bool {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").expect("/proc");
    processes.flatten().any(|entry| {
        let name = entry.file_name();
        let numeric = name.as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
        numeric && name != *own && {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let names = |what: &str| line.windows(what.len()).any(|window| window == what.as_bytes());
            // The command line itself, or what is about to become it, names the word as well, after the executable of ours.
            names(word) && !names(env!("CARGO_BIN_EXE_sandbar"))
        }
    })
}

/// The number of the process that runs the executable with these arguments, once there is one.
pub(crate) fn pid_of(arguments: &[&str]) -> i32 {
    let line: Vec<u8> = std::iter::once(env!("CARGO_BIN_EXE_sandbar"))
        .chain(arguments.iter().copied())
        .flat_map(|word| word.bytes().chain([0]))
        .collect();
    let mut found = None;
    wait_until("the process", || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let is_it = |path: &Path| std::fs::read(path.join("cmdline")).is_ok_and(|own| own == line);
        let name = processes.map(|entry| entry.path()).find(|path| is_it(path));
        found = name.and_then(|path| path.file_name()?.to_str()?.parse().ok());
        found.is_some()
    });
    found.expect("a number")
}

/// Sends a signal to a process by its number.
pub(crate) fn signal_to(pid: i32, signal: &str) {
    let status = Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(status.expect("kill starts").success());
}

/// A word that no other test uses.
pub(crate) fn word() -> String {
    let mut bytes = [0_u8; 8];
    let mut random = std::fs::File::open("/dev/urandom").expect("/dev/urandom");
    std::io::Read::read_exact(&mut random, &mut bytes).expect("random bytes");
    format!("9{:020}", u64::from_le_bytes(bytes))
}
