//! The `sandbar` executable in its role as a shim: where it is, and how it is started.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbar_core::{ErrorKind, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use crate::doctor::{Facts, explain, limits, place, told};
use crate::env::Environment;
use crate::error::{fail, io_error};
use crate::shim::protocol::{MAX_LINE, Orders, ReadyOrder, Report, Task};

/// The name under which the executable is a shim.
const SHIM_NAME: &str = "sandbar-shim";
const FILE: &str = "sandbar";
/// How long a shim may take to report. A creation takes milliseconds; the shim itself gives up on a silent agent earlier.
const REPORT: Duration = Duration::from_secs(60);

/// Finds the executable: what the config names, what the environment names, beside the current executable, in the folders of a build where
/// that lies in one, then `PATH`.
///
/// What is only found and not named must be nobody else's: the file and its folder belong to root or to this user, and others may not write
/// to them.
pub(crate) fn find(configured: Option<&Path>, environment: &Environment) -> Result<PathBuf> {
    let named = configured.or(environment.helper.as_deref());
    if let Some(named) = named {
        return if is_executable(named) {
            absolute(named)
        } else {
            Err(missing(&format!("`{}` is not an executable file", named.display())))
        };
    }
    let current = std::env::current_exe().ok();
    let beside = current.as_deref().and_then(Path::parent).map(places_beside).unwrap_or_default();
    let in_path = std::env::split_paths(&environment.path).filter(|dir| dir.is_absolute());
    find_in(beside.into_iter().chain(in_path))
}

fn find_in(folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf> {
    let mut strangers = Vec::new();
    for dir in folders {
        let file = dir.join(FILE);
        if !is_executable(&file) {
            continue;
        }
        if is_trusted(&dir) && is_trusted(&file) {
            return absolute(&file);
        }
        strangers.push(file.display().to_string());
    }
    Err(if strangers.is_empty() {
        missing("the `sandbar` executable is neither beside this program nor in `PATH`")
    } else {
        missing(&format!("others may write to `{}`, so it is not started", strangers.join("`, `")))
    })
}

/// The folder of a program and, where cargo built it as a test or an example, the folders of the build's programs in each profile.
fn places_beside(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.to_owned()];
    let is_of_build = folder.file_name().is_some_and(|name| name == "deps" || name == "examples");
    if let (true, Some(profile)) = (is_of_build, folder.parent()) {
        places.push(profile.to_owned());
        let siblings = profile.parent().map(|target| ["release", "debug"].map(|name| target.join(name)));
        places.extend(siblings.into_iter().flatten().filter(|sibling| sibling != profile));
    }
    places
}

/// Whether only root, this user and its own group can change what is at `path`.
pub(crate) fn is_trusted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::fs::metadata(path).is_ok_and(|meta| {
        let owned = meta.uid() == 0 || meta.uid() == user;
        let others = meta.mode() & 0o002 != 0;
        let group_writes = meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != group;
        owned && !others && !group_writes
    })
}

fn missing(why: &str) -> sandbar_core::Error {
    let facts = Facts::read(Path::new("/"), None);
    explain(&fail(ErrorKind::Config, "create", why), &place::HELPER_MISSING, &facts)
}

fn is_executable(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|cause| io_error("create", &format!("`{}`", path.display()), cause))
}

/// A shim that reported.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) report: Report,
    /// As long as this is open, the sandbox has its owner.
    pub(crate) owner: OwnedFd,
    pub(crate) child: Child,
}

/// A started process, which somebody has to take note of in the end: also where this call is given up in its middle.
struct Watched<'a> {
    child: Option<Child>,
    abandon: &'a (dyn Fn(Child) + Send + Sync),
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            (self.abandon)(child);
        }
    }
}

/// A shim that runs and has not reported.
#[derive(Debug)]
pub(crate) struct Shim {
    /// Where its executable is, for messages.
    place: PathBuf,
    child: Child,
    orders: OwnedFd,
    report: OwnedFd,
}

/// How long a shim with this task may take to report. What is to be ready may take its time first; of one that is started again that is `ready`.
pub(crate) fn report_bound(task: &Task, ready: Option<&ReadyOrder>) -> Duration {
    let ready = match task {
        Task::Create(orders) => orders.ready.as_ref(),
        _ => ready,
    };
    REPORT.saturating_add(ready.map_or(Duration::ZERO, |ready| Duration::from_millis(ready.within_ms)))
}

/// Starts a shim with `task` and waits for its report. If this future is dropped, the shim takes back what it did; its process goes to
/// `abandon`, as it does after a failure.
pub(crate) async fn start(
    executable: &Path,
    home: &Path,
    task: Task,
    bound: Duration,
    operation: &'static str,
    abandon: &(dyn Fn(Child) + Send + Sync),
) -> Result<Started> {
    let line = line(home, task, operation)?;
    let shim = Shim::spawn(executable, home, operation)?;
    shim.order(line, bound, home, operation, abandon).await
}

/// Orders as they are sent.
pub(crate) fn line(home: &Path, task: Task, operation: &'static str) -> Result<Vec<u8>> {
    let orders = Orders {
        v: task.version(),
        library: env!("CARGO_PKG_VERSION").to_owned(),
        home: home.to_owned(),
        task,
    };
    let mut line =
        serde_json::to_vec(&orders).map_err(|cause| io_error(operation, "the shim's orders", cause))?;
    line.push(b'\n');
    if line.len() > MAX_LINE {
        let message = format!("environment and labels are larger than {MAX_LINE} bytes");
        return Err(fail(ErrorKind::LimitExceeded, operation, message));
    }
    Ok(line)
}

impl Shim {
    /// Starts one, which waits for its orders.
    pub(crate) fn spawn(executable: &Path, home: &Path, operation: &'static str) -> Result<Self> {
        // The shim needs nothing of the environment, and what is in it is none of a sandbox' business.
        let mut child = Command::new(executable)
            .arg0(SHIM_NAME)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|cause| not_started(operation, executable, home, cause))?;
        let broken = |cause: std::io::Error| io_error(operation, "the pipe to the shim", cause);
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => {
                let orders = nonblocking(OwnedFd::from(stdin)).map_err(broken)?;
                let report = nonblocking(OwnedFd::from(stdout)).map_err(broken)?;
                Ok(Self { place: executable.to_owned(), child, orders, report })
            }
            _ => Err(fail(ErrorKind::Unexpected, operation, "the shim has no pipes")),
        }
    }

    /// Sends a short line at once, or not at all; `false` means that there is nobody to read it, or that it does not fit.
    pub(crate) fn tell(&self, line: &[u8]) -> bool {
        rustix::io::write(&self.orders, line).is_ok_and(|sent| sent == line.len())
    }

    /// Whether it said something already, or ended: one that waits for orders does neither.
    pub(crate) fn is_over(&self) -> bool {
        let mut watched = [PollFd::new(&self.report, PollFlags::IN)];
        !matches!(poll(&mut watched, Some(&Timespec::default())), Ok(0))
    }

    /// Its process, of which somebody has to take note; without its pipes it takes back what it did.
    pub(crate) fn dismiss(self) -> Child {
        self.child
    }

    /// Sends the orders and waits for the report.
    pub(crate) async fn order(
        self,
        line: Vec<u8>,
        bound: Duration,
        home: &Path,
        operation: &'static str,
        abandon: &(dyn Fn(Child) + Send + Sync),
    ) -> Result<Started> {
        let Self { place, child, orders, report } = self;
        let place = place.display();
        let mut watched = Watched { child: Some(child), abandon };
        let broken = |cause: std::io::Error| io_error(operation, "the pipe to the shim", cause);
        let mut sender = pipe::Sender::from_owned_fd(orders).map_err(broken)?;
        let receiver = pipe::Receiver::from_owned_fd(report).map_err(broken)?;
        let exchange = async {
            // A shim that refuses its orders may not read them to the end: its report tells why.
            let _ = sender.write_all(&line).await;
            let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
            let mut report = Vec::new();
            BufReader::with_capacity(1024, receiver).take(limit).read_until(b'\n', &mut report).await?;
            Ok(report)
        };
        let Ok(report) = timeout(bound, exchange).await else {
            let message = format!("the shim did not report within {} s", bound.as_secs());
            return Err(
                fail(ErrorKind::Timeout, operation, message).with_retry(sandbar_core::Retry::OutcomeUnknown)
            );
        };
        let report = report.map_err(broken)?;
        if report.is_empty() {
            let message =
                format!("`{place}` ended without a report: it is no `sandbar` executable, or it was killed");
            // Which of the two it is, nobody can tell from here.
            return Err(fail(ErrorKind::Unexpected, operation, message)
                .with_retry(sandbar_core::Retry::OutcomeUnknown)
                .with_hint("`sandbar doctor` says whether the executable is the right one; `SANDBAR_HELPER` names another"));
        }
        let Ok(report) = serde_json::from_slice(&report) else {
            let message = format!("`{place}` does not answer as a `sandbar` executable");
            let error = fail(ErrorKind::Config, operation, message);
            return Err(explain(&error, &place::HELPER_STRANGE, &Facts::read(home, None)));
        };
        let owner = sender.into_nonblocking_fd().map_err(broken)?;
        let child =
            watched.child.take().ok_or_else(|| fail(ErrorKind::Unexpected, operation, "the shim is lost"))?;
        Ok(Started { report, owner, child })
    }
}

/// An error that a condition of the machine explains is told in that condition's words.
fn not_started(
    operation: &'static str,
    executable: &Path,
    home: &Path,
    cause: std::io::Error,
) -> sandbar_core::Error {
    let used_up = cause.raw_os_error() == Some(rustix::io::Errno::AGAIN.raw_os_error());
    let error = io_error(operation, &format!("`{}`", executable.display()), cause);
    if used_up {
        return explain(&error, &limits::PROCESSES_USED_UP, &Facts::read(home, Some(executable)));
    }
    told(error, home, Some(executable))
}

fn nonblocking(fd: OwnedFd) -> std::io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_counts_and_absence_has_a_remedy() {
        let scratch = tempfile::tempdir().unwrap();
        let environment =
            Environment { helper: Some(scratch.path().join("nothing")), ..Environment::default() };
        let error = find(None, &environment).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.hint().unwrap().contains("SANDBAR_HELPER"));
        assert_eq!(find(Some(Path::new("/bin/sh")), &environment).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn the_folders_of_a_build_are_looked_at_and_no_other_folder_above() {
        let places = |folder: &str| places_beside(Path::new(folder));
        assert_eq!(places("/opt/x"), [Path::new("/opt/x")]);
        let of_build = ["/t/debug/deps", "/t/debug", "/t/release"].map(PathBuf::from);
        assert_eq!(places("/t/debug/deps"), of_build);
        assert_eq!(places("/t/release/examples")[2], Path::new("/t/debug"));
    }

    #[test]
    fn a_file_that_others_may_write_is_not_started() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let file = scratch.path().join(FILE);
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let find = || find_in(std::iter::once(scratch.path().to_owned()));
        set(&file, 0o755);
        assert_eq!(find().unwrap(), file);
        set(&file, 0o757);
        assert!(find().unwrap_err().message().contains("others may write"));
        set(&file, 0o755);
        set(scratch.path(), 0o777);
        assert!(find().unwrap_err().message().contains("others may write"));
    }

    #[tokio::test]
    async fn a_stranger_in_its_place_is_noticed() {
        let task = Task::Adopt(sandbar_core::SandboxId::new("s1").unwrap());
        let (program, home) = (Path::new("/bin/true"), Path::new("/nowhere"));
        let error = start(program, home, task, REPORT, "adopt", &drop).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    }
}
