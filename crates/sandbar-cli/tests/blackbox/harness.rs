use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A data folder of a test's own, and the executable to use it with. Its end checks that nothing is left.
pub(crate) struct Home {
    folder: TempDir,
}

/// How ids are mapped for whoever runs the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ids {
    Range,
    Subordinate,
    Single,
}

/// As whom a program runs inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    User,
    Root,
    Sudo,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("sandbar-home-")
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `sandbar ARGUMENTS…` with this data folder.
    pub(crate) fn sandbar(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandbar"));
        command
            .args(arguments)
            .env("SANDBAR_HOME", self.path())
            .env_remove("SANDBAR_URL")
            .stdin(Stdio::null());
        command
    }

    /// Runs it and answers what came out.
    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        self.sandbar(arguments).output().expect("the executable starts")
    }

    /// Runs it, expects success, and answers its standard output as text without the last line end.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "sandbar {arguments:?}: {}", both(&output));
        String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
    }

    /// Makes a sandbox and answers its id.
    pub(crate) fn create(&self, options: &[&str]) -> String {
        self.text(&[&["create"], options].concat())
    }

    pub(crate) fn describe(&self, id: &str) -> Value {
        serde_json::from_str(&self.text(&["describe", id, "--json"])).expect("JSON")
    }

    /// Runs a Python program in a new sandbox as `who` and answers the JSON that it printed.
    pub(crate) fn python(&self, who: Who, program: &str, arguments: &[&str]) -> Value {
        self.python_with(&[], who, program, arguments)
    }

    /// As [`Home::python`] with options for `run`.
    pub(crate) fn python_with(&self, options: &[&str], who: Who, program: &str, arguments: &[&str]) -> Value {
        let output = self.output(
            &[
                &["run"],
                options,
                &who.options(),
                &["--"],
                &who.prefix(),
                &["python3", "-c", program],
                arguments,
            ]
            .concat(),
        );
        assert!(output.status.success(), "python as {who:?}: {}", both(&output));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("python as {who:?}: {e}: {}", both(&output)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let listed = self.output(&["ls", "--json"]);
        let records: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        for record in records.as_array().into_iter().flatten() {
            self.output(&["destroy", record["id"].as_str().unwrap_or_default()]);
        }
        if std::thread::panicking() {
            return;
        }
        let left: Vec<_> = ["sandboxes", "trash", "names", "ids"]
            .iter()
            .filter_map(|folder| std::fs::read_dir(self.path().join(folder)).ok())
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "left in the data folder: {left:?}");
    }
}

impl Who {
    /// Everybody that there is in this id mode.
    pub(crate) fn all() -> &'static [Self] {
        if ids() == Ids::Single { &[Self::User] } else { &[Self::User, Self::Root, Self::Sudo] }
    }

    pub(crate) fn options(self) -> Vec<&'static str> {
        if self == Self::Root { vec!["-u", "root"] } else { vec![] }
    }

    pub(crate) fn prefix(self) -> Vec<&'static str> {
        if self == Self::Sudo { vec!["sudo", "-n"] } else { vec![] }
    }
}

/// The id mode, observed once; where the run says which it should be, it has to be that.
pub(crate) fn ids() -> Ids {
    static IDS: OnceLock<Ids> = OnceLock::new();
    *IDS.get_or_init(|| {
        let home = Home::new();
        let id = home.create(&[]);
        let record = home.describe(&id);
        let word = record["isolation"]["ids"].as_str().expect("an id mode").to_owned();
        if let Ok(expected) = std::env::var("SANDBAR_TEST_MODE") {
            assert_eq!(word, expected, "the run's id mode");
        }
        match word.as_str() {
            "range" => Ids::Range,
            "subordinate" => Ids::Subordinate,
            "single" => Ids::Single,
            other => panic!("unknown id mode `{other}`"),
        }
    })
}

/// Status and both outputs of a finished command, for a failed test's message.
pub(crate) fn both(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Waits until `condition` holds, at most `bound`.
pub(crate) fn wait_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < bound, "{what} did not come about within {bound:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the host has `program` in a folder that sandboxes see; says so if not.
pub(crate) fn host_has(program: &str) -> bool {
    let folders = ["/usr/bin", "/usr/local/bin", "/usr/sbin"];
    let found = folders.iter().any(|folder| Path::new(folder).join(program).exists());
    if !found {
        eprintln!("skipped: this host has no `{program}` below /usr");
    }
    found
}

/// A random word that is on this machine only where the test puts it.
pub(crate) fn marker() -> String {
    let mut bytes = [0_u8; 16];
    let mut random = std::fs::File::open("/dev/urandom").expect("/dev/urandom");
    std::io::Read::read_exact(&mut random, &mut bytes).expect("random bytes");
    bytes.iter().fold(String::from("marker"), |text, byte| text + &format!("{byte:02x}"))
}

/// A folder of the test run that every mode may read.
pub(crate) fn shared_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}
