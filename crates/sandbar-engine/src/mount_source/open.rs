use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_file};

use super::bound::Bound;
use super::known::{CONTROL_SOCKETS, DATA_FOLDERS, KERNEL_FOLDERS, expand, is_data_folder};
use super::walk::{Bounds, Walked, walk};
use crate::error::Error;

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

    fn names(&self, thing: &Path) -> bool {
        self.names.iter().any(|name| std::fs::canonicalize(name).unwrap_or_else(|_| name.clone()) == thing)
    }
}

/// Opens a source by descriptor for [`crate::Mount`]. `data_folder` is Sandbar's own; other data folders are recognised
/// by what they hold.
///
/// Links in `path` are followed; what is checked is where they lead. The mount takes this folder alone, without file
/// systems mounted below it.
///
/// Where some socket on this host has a name that does not say where it lies, the folder is looked through; one that is
/// too big for that, or can't be read, is refused. What is made there later, and sockets of other network namespaces on a
/// host where every name is clear, are not seen.
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
    let kind = FileType::from_raw_mode(data.st_mode);
    if !matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Socket) {
        let why = "only folders, files and named sockets can be mounted";
        return Err(Error::reason("mount", name(), why));
    }
    let source = Source { given: path, real: &real, fd: fd.as_fd(), kind };
    source.check_places(data_folder, allowed)?;
    source.check_sockets(&Bound::observe(), Bounds::default(), allowed)?;
    Ok(fd)
}

pub(super) struct Source<'a> {
    pub(super) given: &'a Path,
    /// Where it leads.
    pub(super) real: &'a Path,
    pub(super) fd: BorrowedFd<'a>,
    pub(super) kind: FileType,
}

impl Source<'_> {
    fn refuse(&self, thing: &Path, what: &str) -> Result<(), Error> {
        self.refuse_for(format!("it is or holds {what} `{}`", thing.display()))
    }

    fn refuse_for(&self, why: String) -> Result<(), Error> {
        Err(Error::reason("mount", self.given.display().to_string(), why)
            .with_hint("mount a narrower folder"))
    }

    /// What is known by its path.
    fn check_places(&self, data_folder: &Path, allowed: &Allowed) -> Result<(), Error> {
        let real = self.real;
        let known = DATA_FOLDERS.iter().flat_map(|pattern| expand(pattern));
        let marked = real.ancestors().filter(|path| is_data_folder(path)).map(Path::to_owned);
        for folder in std::iter::once(data_folder.to_owned()).chain(known).chain(marked) {
            let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
            if overlaps(real, &folder) && !allowed.names(&folder) {
                return self.refuse(&folder, "sandbar's data folder");
            }
        }
        for folder in KERNEL_FOLDERS {
            if real.starts_with(folder) && !allowed.names(real) {
                return self.refuse(Path::new(folder), "the kernel's own files in");
            }
        }
        for socket in CONTROL_SOCKETS {
            for socket in expand(socket) {
                let socket = std::fs::canonicalize(&socket).unwrap_or(socket);
                if overlaps(real, &socket) && !allowed.names(&socket) && !allowed.names(real) {
                    return self.refuse(&socket, "the control socket");
                }
            }
        }
        if self.kind == FileType::Socket && !allowed.names(real) {
            return self.refuse(real, "the socket");
        }
        Ok(())
    }

    /// Whatever else answers there: nobody but its owner knows what it would do for a stranger.
    pub(super) fn check_sockets(
        &self,
        bound: &Bound,
        bounds: Bounds,
        allowed: &Allowed,
    ) -> Result<(), Error> {
        if allowed.names(self.real) {
            return Ok(());
        }
        for socket in &bound.paths {
            if socket.starts_with(self.real) && !allowed.names(socket) {
                return self.refuse(socket, "the socket");
            }
        }
        if self.kind != FileType::Directory || !bound.elsewhere {
            return Ok(());
        }
        let in_place =
            |path: &Path| if path == Path::new("") { self.real.to_owned() } else { self.real.join(path) };
        match walk(self.fd, bounds, |path| allowed.names(&in_place(path))) {
            Walked::Clean => Ok(()),
            Walked::Socket(path) => self.refuse(&in_place(&path), "the socket"),
            Walked::DataFolder(path) => self.refuse(&in_place(&path), "sandbar's data folder"),
            Walked::TooMany(entries) => self.refuse_for(format!(
                "it has more than {entries} entries, too many to be looked through for sockets"
            )),
            Walked::TooLong(time) => self.refuse_for(format!(
                "looking through it for sockets took more than {} seconds",
                time.as_secs()
            )),
            Walked::Closed(path, cause) => self.refuse_for(format!(
                "`{}` can't be looked through for sockets: {}",
                in_place(&path).display(),
                std::io::Error::from(cause)
            )),
        }
    }
}

/// Whether one of them is the other or lies in it.
fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
