use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};

use super::accounts::{BASHRC, GROUP, HOSTS, NSSWITCH, PACKAGE_MANAGERS, PASSWD, PROFILE, REFUSAL};
use super::include::{INCLUDED_ETC, matches};
use super::roots::HostRoots;
use crate::error::Error;
use crate::handover::AGENT_PATH;

/// Folder of a skeleton with the root file system's lowest layer.
pub const SKELETON_ROOT: &str = "root";
/// Folder of a skeleton with what is laid over the host's `/usr`.
pub const SKELETON_USR: &str = "usr";

/// What one settings file may have at most; a bigger one is not a settings file (the biggest known is a bundle of
/// certificates at about 0.3 MiB).
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Depth of folders below an included one.
const MAX_DEPTH: usize = 16;
/// Files that all entries of the list may have together.
const MAX_FILES: usize = 20_000;

/// Folders of the root file system: name and mode.
const FOLDERS: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/spool", 0o755),
    ("var/tmp", 0o1777),
];

/// A skeleton that has been built, opened.
#[derive(Debug)]
pub struct Skeleton {
    /// The lowest layer of the root file system.
    pub root: OwnedFd,
    /// What is laid over `/usr`.
    pub usr: OwnedFd,
}

impl Skeleton {
    /// Opens what [`build_skeleton`] made in `dir`.
    pub fn open(dir: BorrowedFd<'_>) -> Result<Self, Error> {
        let open = |name: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(dir, name, flags, Mode::empty()).map_err(|e| Error::io("open skeleton folder", name, e))
        };
        Ok(Self { root: open(SKELETON_ROOT)?, usr: open(SKELETON_USR)? })
    }
}

/// Makes the skeleton of the `host` template in `dir`, an empty folder of the caller's. Everything belongs to the caller;
/// who owns it inside is a matter of the id map. Make it under another name and rename it: this is not atomic.
pub fn build_skeleton(dir: BorrowedFd<'_>, roots: &HostRoots) -> Result<(), Error> {
    let base = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let (root, usr) = (base.join(SKELETON_ROOT), base.join(SKELETON_USR));
    make_dir(&root, 0o755)?;
    for (name, mode) in FOLDERS {
        make_dir(&root.join(name), *mode)?;
    }
    for (name, target) in &roots.links {
        make_link(target, &root.join(name))?;
    }
    for name in &roots.folders {
        make_dir(&root.join(name), 0o755)?;
    }
    make_link(OsStr::new("/run"), &root.join("var/run"))?;
    make_link(OsStr::new("/run/lock"), &root.join("var/lock"))?;

    let etc = root.join("etc");
    let mut copier = Copier { files: 0, seen: HashSet::new() };
    for entry in INCLUDED_ETC {
        copier.include(Path::new("/etc"), &etc, entry)?;
    }
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("hosts", HOSTS),
        ("nsswitch.conf", NSSWITCH),
        ("profile", PROFILE),
        ("bash.bashrc", BASHRC),
        ("resolv.conf", ""),
    ] {
        make_file(&etc.join(name), text.as_bytes(), 0o644)?;
    }
    make_link(OsStr::new("/proc/self/mounts"), &etc.join("mtab"))?;

    make_dir(&usr, 0o755)?;
    make_dir(&usr.join("bin"), 0o755)?;
    make_link(OsStr::new(AGENT_PATH), &usr.join("bin/sudo"))?;
    // Many scripts say `python`; where the host knows only `python3`, that is what they mean.
    let has = |name: &str| std::fs::symlink_metadata(roots.usr.join(name)).is_ok();
    if has("bin/python3") && !has("bin/python") && !has("local/bin/python") {
        make_link(OsStr::new("python3"), &usr.join("bin/python"))?;
    }
    for name in PACKAGE_MANAGERS {
        if std::fs::symlink_metadata(roots.usr.join("bin").join(name)).is_ok() {
            make_file(&usr.join("bin").join(name), REFUSAL.as_bytes(), 0o755)?;
        }
    }
    Ok(())
}

/// Makes in `dir`, an empty folder of the caller's, what lies below every root file system that is not the host's own: the folders that things are
/// mounted on, the two users that every sandbox has, and `sudo`. Whatever an image has of these is used instead.
pub fn build_bare(dir: BorrowedFd<'_>) -> Result<(), Error> {
    let root = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(SKELETON_ROOT);
    make_dir(&root, 0o755)?;
    for (name, mode) in FOLDERS {
        make_dir(&root.join(name), *mode)?;
    }
    make_link(OsStr::new("/run"), &root.join("var/run"))?;
    let etc = root.join("etc");
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("hosts", HOSTS),
        ("nsswitch.conf", NSSWITCH),
        ("profile", PROFILE),
        ("resolv.conf", ""),
    ] {
        make_file(&etc.join(name), text.as_bytes(), 0o644)?;
    }
    make_link(OsStr::new("/proc/self/mounts"), &etc.join("mtab"))?;
    for name in ["usr/local", "usr/local/bin"] {
        make_dir(&root.join(name), 0o755)?;
    }
    // Before the one of an image in every usual search path: that one can't have the privilege that it needs.
    make_link(OsStr::new(AGENT_PATH), &root.join("usr/local/bin/sudo"))
}

/// Opens what [`build_bare`] made in `dir`.
pub fn open_bare(dir: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, SKELETON_ROOT, flags, Mode::empty())
        .map_err(|cause| Error::io("open skeleton folder", SKELETON_ROOT, cause))
}

/// Copies what a named entry reaches, without ever following a link out of what is listed.
struct Copier {
    files: usize,
    seen: HashSet<PathBuf>,
}

impl Copier {
    fn include(&mut self, from: &Path, to: &Path, entry: &str) -> Result<(), Error> {
        if !entry.ends_with('*') {
            return self.copy(&from.join(entry), &to.join(entry), to, 0);
        }
        let Ok(names) = std::fs::read_dir(from) else { return Ok(()) };
        for name in names.filter_map(Result::ok).filter_map(|item| item.file_name().into_string().ok()) {
            if matches(entry, &name) {
                self.copy(&from.join(&name), &to.join(&name), to, 0)?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &Path, to: &Path, top: &Path, depth: usize) -> Result<(), Error> {
        let Ok(data) = std::fs::symlink_metadata(from) else { return Ok(()) };
        if depth > MAX_DEPTH || self.files >= MAX_FILES || !self.seen.insert(from.to_owned()) {
            return Ok(());
        }
        // What not everybody on the host may read is not for a sandbox either.
        let public = if data.is_dir() { 0o005 } else { 0o004 };
        if data.is_symlink() {
            let target = std::fs::read_link(from).map_err(|e| read_error(from, e))?;
            make_parents(to, top)?;
            self.files += 1;
            return make_link(target.as_os_str(), to);
        }
        if data.mode() & public != public {
            return Ok(());
        }
        if data.is_dir() {
            let Ok(items) = std::fs::read_dir(from) else { return Ok(()) };
            make_parents(to, top)?;
            make_dir(to, 0o755)?;
            for item in items.filter_map(Result::ok) {
                self.copy(&item.path(), &to.join(item.file_name()), top, depth + 1)?;
            }
            return Ok(());
        }
        if !data.is_file() || data.len() > MAX_FILE_BYTES {
            return Ok(());
        }
        // A file that went away since is as one that never was.
        let Ok(bytes) = std::fs::read(from) else { return Ok(()) };
        make_parents(to, top)?;
        self.files += 1;
        make_file(to, &bytes, 0o644 | data.mode() & 0o111)
    }
}

fn make_parents(path: &Path, top: &Path) -> Result<(), Error> {
    let Some(parent) = path.parent() else { return Ok(()) };
    if parent.starts_with(top) && parent != top && !parent.exists() {
        make_parents(parent, top)?;
        make_dir(parent, 0o755)?;
    }
    Ok(())
}

fn make_dir(path: &Path, mode: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(make_error(path, cause)),
        _ => {}
    }
    // The caller's umask has taken bits away.
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|cause| make_error(path, cause))
}

fn make_link(target: &OsStr, path: &Path) -> Result<(), Error> {
    match symlink(target, path) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => Err(make_error(path, cause)),
        _ => Ok(()),
    }
}

fn make_file(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let fail = |cause| make_error(path, cause);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(fail)?;
    file.write_all(bytes).map_err(fail)?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(fail)
}

fn make_error(path: &Path, cause: io::Error) -> Error {
    // The part below `/proc/self/fd/N`, which would tell nobody anything.
    let shown: PathBuf = path.components().skip(5).collect();
    Error::io("make in the host skeleton", shown.display().to_string(), cause)
}

fn read_error(path: &Path, cause: io::Error) -> Error {
    Error::io("read for the host skeleton", path.display().to_string(), cause)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn has_what_programs_need_and_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let fd = std::fs::File::open(dir.path()).unwrap();
        build_skeleton(fd.as_fd(), &HostRoots::observe().unwrap()).unwrap();
        let root = dir.path().join(SKELETON_ROOT);
        let mode = |path: &str| std::fs::metadata(root.join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("tmp"), mode("home/user"), mode("root")), (0o1777, 0o755, 0o700));
        assert!(std::fs::read_to_string(root.join("etc/passwd")).unwrap().contains("user:x:1000:1000:"));
        for absent in
            ["etc/shadow", "etc/gshadow", "etc/ssl/private", "etc/machine-id", "etc/ssh", "etc/sudoers"]
        {
            assert!(std::fs::symlink_metadata(root.join(absent)).is_err(), "`{absent}`");
        }
        Skeleton::open(fd.as_fd()).unwrap();
        let sudo = std::fs::read_link(dir.path().join(SKELETON_USR).join("bin/sudo")).unwrap();
        assert_eq!(sudo, Path::new(AGENT_PATH));
    }

    #[test]
    fn python_is_python3_where_nothing_else_is() {
        for (programs, expected) in [
            (&["bin/python3"][..], true),
            (&["bin/python3", "bin/python"], false),
            (&["bin/python3", "local/bin/python"], false),
            (&["bin/sh"], false),
        ] {
            let (host, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            for program in programs {
                let path = host.path().join("usr").join(program);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            let fd = std::fs::File::open(made.path()).unwrap();
            build_skeleton(fd.as_fd(), &HostRoots::at(host.path()).unwrap()).unwrap();
            let link = std::fs::read_link(made.path().join(SKELETON_USR).join("bin/python")).ok();
            assert_eq!(link.as_deref(), expected.then_some(Path::new("python3")), "{programs:?}");
        }
    }

    #[test]
    fn what_not_everybody_may_read_stays_out() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = |name: &str, mode| {
            std::fs::write(from.path().join(name), "x").unwrap();
            std::fs::set_permissions(from.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        file("magic", 0o644);
        file("rpc", 0o640);
        let mut copier = Copier { files: 0, seen: HashSet::new() };
        for entry in ["magic", "rpc"] {
            copier.include(from.path(), to.path(), entry).unwrap();
        }
        assert!(to.path().join("magic").exists() && !to.path().join("rpc").exists());
    }
}
