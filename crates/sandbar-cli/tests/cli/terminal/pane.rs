use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::harness::{Home, PATIENCE};

/// Marks the end of what a screen has to show before the outer shell is ready.
const PROMPT: &str = "outer> ";

/// A terminal with a shell of this machine in it, which finds the executable under `$sandbar`.
pub(crate) struct Pane {
    socket: TempDir,
}

/// Whether a program is on this machine; tests that need one that is not say so and skip.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        eprintln!("skipped: no `{program}` on this machine");
    }
    found
}

/// Whether a sandbox can have a program: it comes from the machine's own folders of programs.
pub(crate) fn has_inside(program: &str) -> bool {
    let found = ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(program).is_file());
    if !found {
        eprintln!("skipped: no `{program}` on this machine");
    }
    found
}

impl Pane {
    /// Opens a terminal of 100 by 30, or answers nothing where there is no multiplexer.
    pub(crate) fn open(home: &Home) -> Option<Self> {
        if !has("tmux") {
            return None;
        }
        // A socket's path has to be short.
        let socket = tempfile::Builder::new().prefix("sbx").tempdir().expect("a temporary folder");
        let pane = Self { socket };
        let shell = home.sandbar(&[]);
        let mut command = pane.tmux(&["new-session", "-d", "-x", "100", "-y", "30", "sh", "-i"]);
        command.current_dir(home.current());
        for (name, value) in shell.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env("sandbar", env!("CARGO_BIN_EXE_sandbar"));
        command.env("PS1", PROMPT).env("LANG", "C.UTF-8").env_remove("LC_ALL").env_remove("ENV");
        checked(&command.output().expect("tmux starts"));
        pane.wait_for(PROMPT.trim_end());
        Some(pane)
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").args(["-f", "/dev/null", "-S"]).arg(self.socket.path().join("s")).args(arguments);
        command
    }

    fn do_it(&self, arguments: &[&str]) -> String {
        checked(&self.tmux(arguments).output().expect("tmux starts"))
    }

    /// Types text, key by key as far as whoever reads can tell.
    pub(crate) fn types(&self, text: &str) {
        self.do_it(&["send-keys", "-l", "--", text]);
    }

    /// Presses a key by the multiplexer's name for it, such as `Enter` or `C-c`.
    pub(crate) fn presses(&self, key: &str) {
        self.do_it(&["send-keys", key]);
    }

    pub(crate) fn enters(&self, text: &str) {
        self.types(text);
        self.presses("Enter");
    }

    /// Pastes what is in a file.
    pub(crate) fn pastes(&self, file: &Path) {
        self.do_it(&["load-buffer", file.to_str().expect("text")]);
        self.do_it(&["paste-buffer"]);
    }

    pub(crate) fn resizes(&self, cols: u16, rows: u16) {
        self.do_it(&["resize-window", "-x", &cols.to_string(), "-y", &rows.to_string()]);
    }

    /// What the screen shows, with wide lines joined.
    pub(crate) fn screen(&self) -> String {
        self.do_it(&["capture-pane", "-p", "-J"])
    }

    /// What the multiplexer knows about the terminal.
    pub(crate) fn knows(&self, format: &str) -> String {
        self.do_it(&["display-message", "-p", format]).trim_end().to_owned()
    }

    /// Waits until the screen shows `text`.
    pub(crate) fn wait_for(&self, text: &str) {
        self.wait_until(&format!("`{text}`"), |screen| screen.contains(text));
    }

    /// Waits until a line of the screen is `text` and nothing else.
    pub(crate) fn wait_for_line(&self, text: &str) {
        self.wait_until(&format!("a line `{text}`"), |screen| {
            screen.lines().any(|line| line.trim_end() == text)
        });
    }

    pub(crate) fn wait_until(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{what} did not come within {PATIENCE:?}; the screen is:\n{screen}"
            );
            // tmux is asked by starting a process; the machine is for the others meanwhile.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clears the screen of the outer shell, so that old text can't be taken for new.
    pub(crate) fn clears(&self) {
        self.enters("clear");
        self.wait_until("a clear screen", |screen| screen.trim() == PROMPT.trim_end());
    }

    /// The settings of the terminal, as the outer shell sees them.
    pub(crate) fn settings(&self) -> String {
        self.clears();
        self.enters("stty -a; echo 'end of 'settings");
        self.wait_for("end of settings");
        let screen = self.screen();
        screen
            .lines()
            .filter(|line| line.contains("icanon") || line.contains("icrnl") || line.contains("opost"))
            .collect()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        // It is gone already where its shell has ended.
        let _ = self.tmux(&["kill-server"]).output();
    }
}

fn checked(output: &Output) -> String {
    assert!(output.status.success(), "tmux: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
