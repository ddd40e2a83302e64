use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::include::INCLUDED_ETC;
use crate::error::Error;

/// Names at the top of a Linux system that hold its programs. `/usr` comes first and has to be there.
const NAMES: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Files whose change says that the system's packages changed.
const PACKAGE_DATA: &[&str] = &[
    "/var/lib/dpkg/status",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
];

/// Where the host keeps its programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoots {
    /// `/usr`.
    pub usr: PathBuf,
    /// `/bin`, `/lib` and their kind that are links, with their targets: made again inside.
    pub links: Vec<(&'static str, OsString)>,
    /// Those that are folders of their own: mounted read-only inside.
    pub folders: Vec<&'static str>,
}

impl HostRoots {
    /// Looks at `/`.
    pub fn observe() -> Result<Self, Error> {
        Self::at(Path::new("/"))
    }

    pub(super) fn at(root: &Path) -> Result<Self, Error> {
        let usr = root.join("usr");
        if !usr.is_dir() {
            return Err(Error::reason("find the host's programs", "/usr", "it is not a folder")
                .with_hint("use an imported template"));
        }
        let (mut links, mut folders) = (Vec::new(), Vec::new());
        for name in NAMES {
            let path = root.join(name);
            match std::fs::symlink_metadata(&path) {
                Ok(data) if data.is_symlink() => match std::fs::read_link(&path) {
                    Ok(target) => links.push((*name, target.into_os_string())),
                    Err(cause) => return Err(Error::io("read link", path.display().to_string(), cause)),
                },
                Ok(data) if data.is_dir() => folders.push(*name),
                Ok(_) => {}
                Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
                Err(cause) => return Err(Error::io("look at", path.display().to_string(), cause)),
            }
        }
        Ok(Self { usr, links, folders })
    }
}

/// A digest (64 hexadecimal digits) over device, inode, change time and size of the host's program folders, the
/// included settings and the package data bases: another value means that the base may have changed.
pub fn fingerprint(roots: &HostRoots) -> String {
    let mut paths = vec![roots.usr.clone()];
    for name in ["bin", "sbin", "lib", "local", "local/bin", "local/lib", "share"] {
        paths.push(roots.usr.join(name));
    }
    paths.extend(roots.folders.iter().map(|name| Path::new("/").join(name)));
    paths
        .extend(INCLUDED_ETC.iter().filter(|entry| !entry.ends_with('*')).map(|e| Path::new("/etc").join(e)));
    paths.push("/etc".into());
    paths.extend(PACKAGE_DATA.iter().map(PathBuf::from));

    let mut digest = Sha256::new();
    // Its own version first, so that a change of this list, or of what a skeleton holds, never meets an old value by chance.
    digest.update(b"host template 2\0");
    for path in paths {
        digest.update(path.as_os_str().as_encoded_bytes());
        // Of `/etc` itself only the identity counts: it changes whenever anything in it is written.
        if let Ok(data) = std::fs::symlink_metadata(&path) {
            digest.update(data.dev().to_le_bytes());
            digest.update(data.ino().to_le_bytes());
            if path != Path::new("/etc") {
                digest.update(data.mtime().to_le_bytes());
                digest.update(data.mtime_nsec().to_le_bytes());
                digest.update(data.size().to_le_bytes());
            }
        }
        digest.update([0]);
    }
    for (name, target) in &roots.links {
        digest.update(name.as_bytes());
        digest.update(target.as_encoded_bytes());
    }
    digest.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_folders_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        std::fs::create_dir(dir.path().join("lib")).unwrap();
        std::fs::create_dir(dir.path().join("srv")).unwrap();
        std::os::unix::fs::symlink("usr/bin", dir.path().join("bin")).unwrap();
        let roots = HostRoots::at(dir.path()).unwrap();
        assert_eq!(roots.links, [("bin", OsString::from("usr/bin"))]);
        assert_eq!(roots.folders, ["lib"]);
    }

    #[test]
    fn a_touched_folder_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
        let roots = HostRoots::at(dir.path()).unwrap();
        let before = fingerprint(&roots);
        assert_eq!(before, fingerprint(&roots));
        std::fs::write(dir.path().join("usr/bin/new"), "").unwrap();
        assert_ne!(before, fingerprint(&roots));
    }
}
