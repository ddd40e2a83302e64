use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags, fstat, ioctl_getflags, ioctl_setflags, mkdirat,
    openat, renameat, unlinkat,
};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result, SandboxId};

use crate::doctor::{Facts, Fault, explain, place};
use crate::env;
use crate::error::{fail, found, io_error};
use crate::loop_store;

/// Folder of a server's own store in a data folder (`sandbar serve`).
const SERVER: &str = "server";

/// The format of the data folder that this code reads and writes.
const FORMAT: u32 = 1;
/// Longest `version` file that is read, in bytes.
const MAX_VERSION: usize = 64;
/// Folders of the data folder.
pub(crate) const FOLDERS: &[&str] =
    &["names", "ids", "templates", "layers", "volumes", SANDBOXES, "trash", POOL];
/// The folder of the sandboxes' own.
const SANDBOXES: &str = "sandboxes";
/// Emptied folders of layers for other sandboxes.
pub(super) const POOL: &str = "pool";
/// Every folder in here is for its owner alone.
pub(super) const PRIVATE: Mode = Mode::RWXU;

/// An open data folder. Cheap to open; opened anew by each call, so that one that was removed is noticed.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    dir: OwnedFd,
}

impl Home {
    /// Opens the data folder; `None` means that there is positively none yet, and so no sandbox.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let Some(dir) = open_dir(path)? else { return Ok(None) };
        let mut home = Self { path: path.to_owned(), dir };
        if let Some(dir) = loop_store::mount_if_needed(&home)? {
            home.dir = dir;
        }
        // What it is comes first: nobody is told to close a folder of the system's to others.
        let is_home = match home.version()? {
            Some(_) => true,
            None if home.is_blank()? => false,
            // Between the two looks, another process may have made it what it is.
            None if home.version()?.is_some() => true,
            None => return Err(home.foreign()),
        };
        home.check_owner()?;
        Ok(is_home.then_some(home))
    }

    /// Opens the data folder and makes it where there is none.
    pub(crate) fn ensure(path: &Path) -> Result<Self> {
        let fail = |cause: Errno| io_error("open", &format!("data folder `{}`", path.display()), cause);
        if let Some(home) = Self::open(path)? {
            home.make_folders().map_err(fail)?;
            return Ok(home);
        }
        let home = Self::place(path)?;
        home.write_version().map_err(fail)?;
        home.make_folders().map_err(fail)?;
        Ok(home)
    }

    /// The folder alone, made where there is none, whatever is in it.
    pub(crate) fn place(path: &Path) -> Result<Self> {
        let fail = |cause: Errno| io_error("open", &format!("data folder `{}`", path.display()), cause);
        if let Some(parent) = path.parent() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .create(parent)
                .map_err(|cause| io_error("open", &format!("`{}`", parent.display()), cause))?;
        }
        match mkdirat(CWD, path, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(fail(cause)),
        }
        let dir = open_dir(path)?.ok_or_else(|| fail(Errno::NOENT))?;
        let home = Self { path: path.to_owned(), dir };
        home.check_owner()?;
        Ok(home)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the folder of `id` is, for messages.
    pub(crate) fn folder_path(&self, id: &SandboxId) -> PathBuf {
        self.path.join("sandboxes").join(id.as_str())
    }

    /// The ids that have a folder, in the order of the folder.
    pub(crate) fn ids(&self) -> rustix::io::Result<Vec<SandboxId>> {
        let names = self.entries("sandboxes")?;
        Ok(names.into_iter().filter_map(|name| SandboxId::new(name).ok()).collect())
    }

    /// Names in one of its folders; none if the folder is not there.
    pub(crate) fn entries(&self, folder: &str) -> rustix::io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(dir) = found(openat(&self.dir, folder, flags, Mode::empty()))? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::new(dir)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// A file in it, of `limit` bytes at most; `None` means that there is positively none.
    pub(crate) fn read_at(&self, place: &str, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Some(file) = found(openat(&self.dir, place, flags, Mode::empty()))? else { return Ok(None) };
        super::folder::read_bounded(&file, limit).map(Some)
    }

    /// Puts a file in the place of the one before: whole, or not at all, and on the disk when this answers; never one that is longer than `limit`, as its
    /// readers take.
    pub(crate) fn replace_at(&self, place: &str, bytes: &[u8], limit: usize) -> std::io::Result<()> {
        super::folder::check_length(bytes, limit)?;
        let new = format!("{place}.new-{}", crate::id::random_text(8)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = std::fs::File::from(openat(&self.dir, &new, flags, Mode::RUSR | Mode::WUSR)?);
        let done = std::io::Write::write_all(&mut file, bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(renameat(&self.dir, new.as_str(), &self.dir, place)?));
        if done.is_err() {
            let _ = unlinkat(&self.dir, new.as_str(), AtFlags::empty());
        }
        done
    }

    /// Refuses one that is not the caller's, or open to others.
    pub(crate) fn check_owner(&self) -> Result<()> {
        let stat = fstat(&self.dir)
            .map_err(|cause| io_error("open", &format!("data folder `{}`", self.path.display()), cause))?;
        let complain = |why: String, fault: &'static Fault| {
            let error = fail(ErrorKind::Config, "open", format!("`{}` {why}", self.path.display()));
            Err(explain(&error, fault, &Facts::read(&self.path, None)))
        };
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return complain(
                format!("belongs to user {}, not to the one that runs this", stat.st_uid),
                &place::FOLDER_STRANGER,
            );
        }
        if stat.st_mode & 0o077 != 0 {
            return complain(format!("has mode {:o}", stat.st_mode & 0o777), &place::FOLDER_OPEN);
        }
        Ok(())
    }

    /// The format of the folder; `None` where it has none.
    fn version(&self) -> Result<Option<u32>> {
        let fail_at = |cause: Errno| io_error("open", &format!("`{}/version`", self.path.display()), cause);
        // Not to wait for a pipe of that name in a folder that is not ours.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Some(file) = found(openat(&self.dir, "version", flags, Mode::empty())).map_err(fail_at)? else {
            return Ok(None);
        };
        let mut buffer = [0; MAX_VERSION];
        let length = rustix::io::read(&file, &mut buffer).map_err(fail_at)?;
        let text = String::from_utf8_lossy(&buffer[..length]).trim().to_owned();
        match text.parse::<u32>() {
            Ok(version) if version <= FORMAT => Ok(Some(version)),
            Ok(version) => Err(fail(
                ErrorKind::Config,
                "open",
                format!(
                    "data folder `{}` has format {version}; this version of sandbar reads up to {FORMAT}",
                    self.path.display()
                ),
            )
            .with_hint("use the newer `sandbar` that made it")),
            Err(_) => Err(fail(
                ErrorKind::Config,
                "open",
                format!(
                    "`{}/version` holds `{}`: expected a number",
                    self.path.display(),
                    text.escape_debug()
                ),
            )),
        }
    }

    /// Whether there is nothing in it but what another process may be making it from, and what a server keeps there, which may come first.
    fn is_blank(&self) -> Result<bool> {
        let names = self
            .entries(".")
            .map_err(|cause| io_error("open", &format!("data folder `{}`", self.path.display()), cause))?;
        Ok(names.iter().all(|name| name.starts_with(".version-") || name == SERVER))
    }

    fn foreign(&self) -> sandbar_core::Error {
        fail(ErrorKind::Config, "open", format!("`{}` is not a data folder of sandbar", self.path.display()))
            .with_hint("name a folder that does not exist yet, or an empty one")
    }

    fn write_version(&self) -> rustix::io::Result<()> {
        let temporary = format!(".version-{}", crate::id::random_text(8)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
        let done = rustix::io::write(&file, format!("{FORMAT}\n").as_bytes())
            .and_then(|_| renameat(&self.dir, &temporary, &self.dir, "version"));
        if done.is_err() {
            let _ = unlinkat(&self.dir, &temporary, AtFlags::empty());
        }
        done
    }

    /// Tells a file system of the ext family that what lies in this folder has nothing to do with each other: each sandbox then gets a place of its own
    /// on the disk. All in one place, they would look for room among what their neighbours just deleted, which is slow where there is no journal.
    fn spread(&self, folder: &str) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let folder = openat(&self.dir, folder, flags, Mode::empty())?;
        // Other file systems have no such wish, and say so.
        if let Ok(now) = ioctl_getflags(&folder) {
            let _ = ioctl_setflags(&folder, now | IFlags::TOPDIR);
        }
        Ok(())
    }

    fn make_folders(&self) -> rustix::io::Result<()> {
        for folder in FOLDERS {
            match mkdirat(&self.dir, *folder, PRIVATE) {
                Ok(()) if *folder == SANDBOXES => self.spread(folder)?,
                Ok(()) | Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

impl AsFd for Home {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Opens a folder; `None` means that there is positively none.
pub(crate) fn open_dir(path: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR) => {
            Err(fail(ErrorKind::Config, "open", format!("data folder `{}` is not a folder", path.display()))
                .with_hint(format!("set `{}` to a folder of your own", env::HOME)))
        }
        Err(cause) => Err(io_error("open", &format!("data folder `{}`", path.display()), cause)),
    }
}

/// Whether an entry is a folder, without following links.
pub(super) fn is_dir(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn it_is_made_once_private_and_found_again() {
        let scratch = scratch();
        let path = scratch.path().join("deep/home");
        assert!(Home::open(&path).unwrap().is_none());
        Home::ensure(&path).unwrap();
        let home = Home::ensure(&path).unwrap();
        assert!(home.ids().unwrap().is_empty());
        for folder in FOLDERS.iter().chain(&["."]) {
            let mode = fs::metadata(path.join(folder)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{folder}");
        }
        assert_eq!(fs::read_to_string(path.join("version")).unwrap(), "1\n");
    }

    #[test]
    fn others_must_not_look_in() {
        let scratch = scratch();
        let path = scratch.path().join("home");
        Home::ensure(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let error = Home::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.hint().unwrap().contains("chmod 700"));
    }

    #[test]
    fn a_newer_format_and_a_foreign_folder_are_refused() {
        let scratch = scratch();
        let path = scratch.path().join("home");
        Home::ensure(&path).unwrap();
        fs::write(path.join("version"), "2\n").unwrap();
        assert!(Home::open(&path).unwrap_err().message().contains("format 2"));
        fs::write(path.join("version"), "x").unwrap();
        assert_eq!(Home::open(&path).unwrap_err().kind(), ErrorKind::Config);

        let foreign = scratch.path().join("foreign");
        fs::DirBuilder::new().create(&foreign).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Home::open(&foreign).unwrap().is_none(), "an empty folder will do");
        fs::write(foreign.join("notes.txt"), "mine").unwrap();
        assert!(Home::ensure(&foreign).unwrap_err().message().contains("not a data folder"));
        fs::write(scratch.path().join("file"), "").unwrap();
        assert_eq!(Home::open(&scratch.path().join("file")).unwrap_err().kind(), ErrorKind::Config);
    }
}
