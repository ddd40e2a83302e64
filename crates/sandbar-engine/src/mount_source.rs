//! Checking what a person wants to mount from the host.
//!
//! A read-only mount still lets a process connect to a Unix socket in it, so a source that is or holds the control socket
//! of something powerful is refused unless it is allowed by name.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_file};

use crate::error::Error;

/// What connects to one of these has the rights of what listens. `*` stands for the rest of one name.
const CONTROL_SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/run/docker",
    "/run/podman",
    "/run/containerd",
    "/run/crio",
    "/run/cri-dockerd.sock",
    "/run/buildkit",
    "/run/snapd.socket",
    "/run/snapd-snap.socket",
    "/run/dbus",
    "/run/systemd",
    "/run/udev/control",
    "/run/libvirt",
    "/run/lxd",
    "/run/incus",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/user/*/docker.sock",
    "/run/user/*/podman",
    "/run/user/*/containerd",
    "/run/user/*/bus",
    "/run/user/*/systemd",
    "/run/user/*/pulse",
    "/run/user/*/pipewire-*",
    "/run/user/*/wayland-*",
    "/run/user/*/gnupg",
    "/run/user/*/keyring",
    "/run/user/*/ssh-agent*",
    "/tmp/.X11-unix",
    "/tmp/ssh-*",
    "/home/*/.gnupg",
    "/home/*/.docker/run",
    "/home/*/.docker/desktop",
    "/home/*/.ssh/agent",
    "/root/.gnupg",
];

/// Folders whose whole content is the kernel's own.
const KERNEL_FOLDERS: &[&str] = &["/proc", "/sys", "/dev"];

/// What else may be mounted than what is harmless.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    names: Vec<PathBuf>,
}

impl Allowed {
    /// Also this control socket or its folder, or the data folder, which the person named.
    pub fn with_name(mut self, path: impl Into<PathBuf>) -> Self {
        self.names.push(path.into());
        self
    }
}

/// Opens a source by descriptor for [`crate::Mount`]. `data_folder` is Sandbar's own.
///
/// Links in `path` are followed; what is checked is where they lead. The mount takes this folder alone, without file
/// systems mounted below it.
pub fn open(path: &Path, data_folder: &Path, allowed: &Allowed) -> Result<OwnedFd, Error> {
    let name = || path.display().to_string();
    if !path.is_absolute() {
        return Err(Error::reason("mount", name(), "the host path must be absolute"));
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = open_file(path, flags, Mode::empty())
        .map_err(|cause| Error::io("open mount source", name(), cause))?;
    let real = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
        .map_err(|cause| Error::io("find the path of mount source", name(), cause))?;
    let data = fstat(&fd).map_err(|cause| Error::io("look at mount source", name(), cause))?;
    match FileType::from_raw_mode(data.st_mode) {
        FileType::Directory | FileType::RegularFile | FileType::Socket => {}
        _ => {
            return Err(Error::reason(
                "mount",
                name(),
                "only folders, files and named sockets can be mounted",
            ));
        }
    }
    let is_socket = FileType::from_raw_mode(data.st_mode) == FileType::Socket;
    check(path, &real, is_socket, data_folder, allowed)?;
    Ok(fd)
}

fn check(
    given: &Path,
    real: &Path,
    is_socket: bool,
    data_folder: &Path,
    allowed: &Allowed,
) -> Result<(), Error> {
    let named = |thing: &Path| {
        allowed.names.iter().any(|name| std::fs::canonicalize(name).unwrap_or_else(|_| name.clone()) == thing)
    };
    let refuse = |thing: &Path, what: &str| {
        Err(Error::reason(
            "mount",
            given.display().to_string(),
            format!("it is or holds {what} `{}`", thing.display()),
        )
        .with_hint("mount a narrower folder"))
    };
    let data_folder = std::fs::canonicalize(data_folder).unwrap_or_else(|_| data_folder.to_owned());
    if overlaps(real, &data_folder) && !named(&data_folder) {
        return refuse(&data_folder, "sandbar's data folder");
    }
    for folder in KERNEL_FOLDERS {
        if real.starts_with(folder) && !named(real) {
            return refuse(Path::new(folder), "the kernel's own files in");
        }
    }
    for socket in CONTROL_SOCKETS {
        for socket in expand(socket) {
            let socket = std::fs::canonicalize(&socket).unwrap_or(socket);
            if overlaps(real, &socket) && !named(&socket) && !named(real) {
                return refuse(&socket, "the control socket");
            }
        }
    }
    if is_socket && !named(real) {
        return refuse(real, "the socket");
    }
    // Whatever else listens there: nobody but its owner knows what it would do for a stranger.
    for socket in listening() {
        if socket.starts_with(real) && !named(&socket) && !named(real) {
            return refuse(&socket, "the socket");
        }
    }
    Ok(())
}

/// The named sockets that something on this host (in this network namespace) listens on.
fn listening() -> Vec<PathBuf> {
    /// `__SO_ACCEPTCON` of the kernel: the socket takes connections.
    const ACCEPTS: u64 = 0x1_0000;
    let Ok(table) = std::fs::read("/proc/net/unix") else { return Vec::new() };
    table
        .split(|byte| *byte == b'\n')
        .skip(1)
        .filter_map(|line| {
            // Number, references, protocol, flags, type, state, inode, and a name that may hold anything.
            let mut fields = line.splitn(8, |byte| *byte == b' ').filter(|field| !field.is_empty());
            let flags = u64::from_str_radix(std::str::from_utf8(fields.nth(3)?).ok()?, 16).ok()?;
            let start = line.iter().position(|byte| *byte == b'/')?;
            (flags & ACCEPTS != 0).then(|| PathBuf::from(OsStr::from_bytes(&line[start..])))
        })
        .map(|path| std::fs::canonicalize(&path).unwrap_or(path))
        .collect()
}

/// Whether one of them is the other or lies in it.
fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Every existing path that a pattern means.
fn expand(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.into_iter().flat_map(|dir| step(&dir, part)).collect();
    }
    found.retain(|path| std::fs::symlink_metadata(path).is_ok());
    found
}

fn step(dir: &Path, part: &str) -> Vec<PathBuf> {
    let Some(start) = part.strip_suffix('*') else { return vec![dir.join(part)] };
    let Ok(names) = std::fs::read_dir(dir) else { return Vec::new() };
    names
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .filter(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
        .map(|name| dir.join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_ordinary_folder_is_fine_and_the_data_folder_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (data, project) = (dir.path().join("data"), dir.path().join("project"));
        std::fs::create_dir_all(data.join("sandboxes")).unwrap();
        std::fs::create_dir(&project).unwrap();
        open(&project, &data, &Allowed::default()).unwrap();
        for bad in [data.clone(), data.join("sandboxes"), dir.path().to_owned()] {
            let error = open(&bad, &data, &Allowed::default()).unwrap_err();
            assert!(error.to_string().contains("data folder"), "{error}");
            assert!(error.hint().is_some());
        }
        open(&data, &data, &Allowed::default().with_name(&data)).unwrap();
    }

    #[test]
    fn a_link_to_a_refused_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        std::fs::create_dir(&data).unwrap();
        symlink(&data, dir.path().join("link")).unwrap();
        assert!(open(&dir.path().join("link"), &data, &Allowed::default()).is_err());
        symlink("/proc", dir.path().join("proc")).unwrap();
        assert!(open(&dir.path().join("proc"), &data, &Allowed::default()).is_err());
    }

    #[test]
    fn a_socket_needs_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let nowhere = Path::new("/nonexistent-data");
        assert!(open(&path, nowhere, &Allowed::default()).is_err());
        open(&path, nowhere, &Allowed::default().with_name(&path)).unwrap();
    }

    #[test]
    fn a_folder_where_something_listens_is_refused_while_it_does() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = Path::new("/nonexistent-data");
        let below = dir.path().join("a b");
        std::fs::create_dir(&below).unwrap();
        let path = below.join("some name.sock");
        let listener = UnixListener::bind(&path).unwrap();
        for folder in [dir.path(), below.as_path()] {
            let error = open(folder, nowhere, &Allowed::default()).unwrap_err();
            assert!(error.to_string().contains("some name.sock"), "{error}");
        }
        open(dir.path(), nowhere, &Allowed::default().with_name(&path)).unwrap();
        drop(listener);
        open(dir.path(), nowhere, &Allowed::default()).unwrap();
    }

    #[test]
    fn the_root_holds_control_sockets() {
        // `/run/systemd` or another of the list exists on any system with a `/run`; where none does, `/` holds /proc.
        let nowhere = Path::new("/nonexistent-data");
        let hits = CONTROL_SOCKETS.iter().flat_map(|pattern| expand(pattern)).count();
        assert_eq!(open(Path::new("/"), nowhere, &Allowed::default()).is_err(), hits > 0);
    }

    #[test]
    fn what_a_pattern_means() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("1000/pipewire-0")).unwrap();
        std::fs::create_dir_all(dir.path().join("1001")).unwrap();
        let pattern = format!("{}/*/pipewire-*", dir.path().display());
        assert_eq!(expand(&pattern), [dir.path().join("1000/pipewire-0")]);
    }
}
