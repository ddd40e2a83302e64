use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use super::column::Kind;
use super::packages::quietly;

/// How long a server may take until it has said where it is, on a busy machine.
const LONGEST_START: Duration = Duration::from_mins(1);
/// How long the code interpreter's template may take, whose packages are there.
const LONGEST_MAKING: Duration = Duration::from_mins(3);
/// What the server's log says of that template.
const INTERPRETER_READY: &str = "code-interpreter-v1 is there";
const INTERPRETER_FAILED: &str = "code-interpreter-v1 can't be made";
/// How long it may take to end.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// Between two looks at one that ends.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Lines of its log that are shown where something went wrong.
const LOG_LINES: usize = 40;
/// The domain of the server that has one. No resolver knows it.
const DOMAIN: &str = "sandbox.test";

/// The servers under test, which share what is theirs: one that is reached by its address, and one with a domain, started when it is needed.
pub(super) struct Servers {
    helper: PathBuf,
    folder: PathBuf,
    plain: Running,
    with_domain: Mutex<Option<Running>>,
}

/// A server.
struct Running {
    child: Child,
    /// What it said is to be exported.
    exports: Vec<(String, String)>,
    log: PathBuf,
}

impl Servers {
    pub(super) fn start(helper: &Path, interpreter: Option<&Path>) -> Result<Self, String> {
        let folder = new_folder()?;
        let mut command = serve_at(helper, &folder, "0");
        match interpreter {
            Some(packages) => command.arg("--code-interpreter-packages").arg(packages),
            None => command.args(["--code-interpreter", "off"]),
        };
        let plain = Running::start(command, &folder.join("server.log"))?;
        Ok(Self { helper: helper.to_owned(), folder, plain, with_domain: Mutex::default() })
    }

    /// Where the scripts work.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Points a program to a server, with a key of its own: so none sees what another does.
    pub(super) fn environment(&self, command: &mut Command, kind: Kind) -> Result<(), String> {
        if kind.is_interpreter() {
            self.plain.await_interpreter()?;
        }
        if kind.is_domain() {
            let mut with_domain = self.with_domain.lock().map_err(|e| e.to_string())?;
            if with_domain.is_none() {
                *with_domain = Some(self.start_with_domain()?);
            }
            if let Some(running) = &*with_domain {
                command.envs(running.exports.iter().cloned());
            }
            let ca = self.folder.join("ca.pem");
            command.env("NODE_EXTRA_CA_CERTS", &ca).env("SSL_CERT_FILE", &ca);
        } else {
            command.envs(self.plain.exports.iter().cloned());
        }
        command.env("INTEROP_DOMAIN", self.domain()?);
        command.env("E2B_API_KEY", self.key()?);
        Ok(())
    }

    /// A key of a tenant of its own.
    fn key(&self) -> Result<String, String> {
        let mut command = Command::new(&self.helper);
        command.args(["--json", "key", "create", "interop", "--data"]).arg(store(&self.folder));
        let told: Value =
            serde_json::from_str(&crate::run::output(&mut command)?).map_err(|e| e.to_string())?;
        told["key"].as_str().map(str::to_owned).ok_or_else(|| "`sandbar key create` told no key".into())
    }

    fn start_with_domain(&self) -> Result<Running, String> {
        make_certificates(&self.folder)?;
        let domain = self.domain()?;
        let mut command = serve_at(&self.helper, &self.folder, domain.rsplit(':').next().unwrap_or_default());
        command.args(["--code-interpreter", "off", "--domain", &domain]);
        command
            .arg("--tls-cert")
            .arg(self.folder.join("cert.pem"))
            .arg("--tls-key")
            .arg(self.folder.join("key.pem"));
        let mut running = Running::start(command, &self.folder.join("domain.log"))?;
        // Nobody resolves its names; the certificate names its address as well.
        let address = format!("https://127.0.0.1:{}", domain.rsplit(':').next().unwrap_or_default());
        for (_, value) in running.exports.iter_mut().filter(|(name, _)| name.ends_with("_URL")) {
            value.clone_from(&address);
        }
        Ok(running)
    }

    /// The domain with the port that its server has: a free one, found once.
    fn domain(&self) -> Result<String, String> {
        let file = self.folder.join("domain");
        if let Ok(domain) = fs::read_to_string(&file) {
            return Ok(domain);
        }
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| format!("no free port: {e}"))?;
        let port = listener.local_addr().map_err(|e| format!("no free port: {e}"))?.port();
        let domain = format!("{DOMAIN}:{port}");
        fs::write(&file, &domain).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(domain)
    }

    /// Ends the servers and removes what is left. Sandboxes that are left are a fault: every case ends its own.
    pub(super) fn stop(mut self) -> Result<(), String> {
        let mut complaints: Vec<String> = self.plain.stop().err().into_iter().collect();
        if let Ok(Some(mut running)) = self.with_domain.lock().map(|mut running| running.take()) {
            complaints.extend(running.stop().err());
        }
        let listed = crate::run::output(self.helper_at_home().args(["--json", "ls"]));
        let left = listed.map(|text| ids(&text)).unwrap_or_default();
        if !left.is_empty() {
            crate::run::run(self.helper_at_home().arg("destroy").args(&left))?;
            complaints.push(format!("sandboxes were left: {}", left.join(", ")));
        }
        if complaints.is_empty() {
            fs::remove_dir_all(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))?;
            return Ok(());
        }
        Err(complaints.join("; "))
    }

    fn helper_at_home(&self) -> Command {
        let mut command = Command::new(&self.helper);
        command.arg("--provider").arg(home(&self.folder));
        command
    }
}

/// A folder that no other run has: within a rig another may have the same process id.
fn new_folder() -> Result<PathBuf, String> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|e| e.to_string())?;
    let name = format!("sandbar-interop-{}-{}", std::process::id(), since.as_nanos());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

fn ids(text: &str) -> Vec<String> {
    let told: Value = serde_json::from_str(text).unwrap_or_default();
    let list = told.as_array().into_iter().flatten();
    list.filter_map(|each| each["id"].as_str().map(str::to_owned)).collect()
}

fn home(folder: &Path) -> String {
    format!("local:{}", folder.join("home").display())
}

fn store(folder: &Path) -> PathBuf {
    folder.join("server")
}

fn serve_at(helper: &Path, folder: &Path, port: &str) -> Command {
    let mut command = Command::new(helper);
    command.arg("--provider").arg(home(folder)).args([
        "serve",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--data",
    ]);
    command.arg(store(folder));
    command
}

impl Running {
    fn start(mut command: Command, log: &Path) -> Result<Self, String> {
        let stderr = fs::File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(|e| format!("`sandbar serve` could not be started: {e}"))?;
        let stdout = child.stdout.take().ok_or("`sandbar serve` has no output")?;
        let (tell, told) = mpsc::channel();
        // Reads on to the end, so that the server never writes to nobody.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut running = Self { child, exports: Vec::new(), log: log.to_owned() };
        let end = Instant::now() + LONGEST_START;
        while !running.exports.iter().any(|(name, _)| name == "E2B_VOLUME_API_URL") {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = told.recv_timeout(left) else {
                let log = running.log_end();
                let _ = running.stop();
                return Err(format!("`sandbar serve` did not say where it is; its log ends:\n{log}"));
            };
            // As a user pastes it.
            if let Some((name, value)) = line.strip_prefix("export ").and_then(|pair| pair.split_once('=')) {
                running.exports.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(running)
    }

    /// Waits until the code interpreter's template is made: a creation of it waits for less.
    fn await_interpreter(&self) -> Result<(), String> {
        let end = Instant::now() + LONGEST_MAKING;
        while Instant::now() < end {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if log.contains(INTERPRETER_READY) {
                return Ok(());
            }
            if log.contains(INTERPRETER_FAILED) {
                return Err(format!("the server has no code interpreter; its log ends:\n{}", self.log_end()));
            }
            thread::sleep(LOOK_EVERY);
        }
        let seconds = LONGEST_MAKING.as_secs();
        Err(format!("no code interpreter after {seconds} s; the server's log ends:\n{}", self.log_end()))
    }

    /// Asks it to end, as a service manager does.
    fn stop(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!(
                "the server ended by itself with {status}; its log ends:\n{}",
                self.log_end()
            ));
        }
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let end = Instant::now() + LONGEST_STOP;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return if status.success() {
                    Ok(())
                } else {
                    Err(format!("the server ended with {status}"))
                };
            }
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        Err(format!(
            "the server did not end within {} s; its log ends:\n{}",
            LONGEST_STOP.as_secs(),
            self.log_end()
        ))
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority of this run and a certificate by it for the domain and the address.
fn make_certificates(folder: &Path) -> Result<(), String> {
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        quietly(command.current_dir(folder).args(arguments.split(' ')))
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=interop -keyout ca-key.pem -out ca.pem")?;
    openssl("req -newkey rsa:2048 -nodes -subj /CN=sandbox.test -keyout key.pem -out request.pem")?;
    let names = format!("subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN},DNS:localhost,IP:127.0.0.1\n");
    let file = folder.join("names");
    fs::write(&file, names).map_err(|e| format!("{}: {e}", file.display()))?;
    openssl(
        "x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile names -out cert.pem",
    )
}
