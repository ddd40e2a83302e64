use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat, chmodat, fstat, openat, renameat_with, statat,
};
use rustix::io::Errno;
use sandbar_wire::envd::HttpError;

use super::outcome::of_io;

/// Most bytes of names of what a merge moves, as each is kept until it is over: what goes to a folder that is new is one name.
const MAX_NAMES: usize = 12 << 20;
/// Most folders above each other: what was unpacked is no deeper.
const MAX_DEPTH: usize = sandbar_archive::MAX_DEPTH;

/// Moves what is in `new` to `into`, all or nothing. Folders that are on both sides are merged; a file or link takes the place of one, which goes to `old`;
/// everything else is refused before anything moves.
pub(super) fn merge(new: BorrowedFd<'_>, old: BorrowedFd<'_>, into: BorrowedFd<'_>) -> Result<(), HttpError> {
    let mut plan = Plan { moves: Vec::new(), bytes: 0 };
    plan.folder(new, into, &mut Vec::new(), 0)?;
    let roots = Roots { new, old, into };
    for (done, step) in plan.moves.iter().enumerate() {
        if let Err(error) = roots.make(step, done) {
            for (number, step) in plan.moves[..done].iter().enumerate().rev() {
                roots.undo(step, number).map_err(|again| {
                    let path = shown(&step.path);
                    HttpError::new(
                        500,
                        format!("`{path}` was moved and can't be moved back ({again}) after: {error}"),
                    )
                })?;
            }
            return Err(of_io(format_args!("move `{}` to its place", shown(&step.path)), error));
        }
    }
    Ok(())
}

/// What is to be moved, in order.
struct Plan {
    moves: Vec<Step>,
    bytes: usize,
}

#[derive(Debug)]
struct Step {
    path: Box<[u8]>,
    /// Something is there that it takes the place of.
    replaces: bool,
    /// Rights of a folder that its owner may not write to, and so not move.
    closed: Option<u16>,
}

impl Plan {
    fn folder(
        &mut self,
        new: BorrowedFd<'_>,
        into: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), HttpError> {
        let fail = |path: &[u8], error: Errno| of_io(format_args!("look at `{}`", shown(path)), error);
        if depth > MAX_DEPTH {
            return Err(HttpError::new(
                400,
                format!("`{}` is more than {MAX_DEPTH} folders deep", shown(path)),
            ));
        }
        let here = fstat(into).map_err(|error| fail(path, error))?;
        let names = names(new).map_err(|error| fail(path, error))?;
        for name in names {
            let length = path.len();
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            let coming = statat(new, &*name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| fail(path, error))?;
            let there = match statat(into, &*name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) => Some(there),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(fail(path, error)),
            };
            match (kind(&coming), there.as_ref().map(kind)) {
                (FileType::Directory, Some(FileType::Directory)) => {
                    if there.is_some_and(|there| there.st_dev != here.st_dev) {
                        let text =
                            format!("`{}` is a volume or mount: import into it by its own path", shown(path));
                        return Err(HttpError::new(400, text));
                    }
                    let open =
                        |at| openat(at, &*name, FOLDER, Mode::empty()).map_err(|error| fail(path, error));
                    let (new, into): (OwnedFd, OwnedFd) = (open(new)?, open(into)?);
                    self.folder(new.as_fd(), into.as_fd(), path, depth + 1)?;
                }
                (FileType::Directory, Some(_)) | (_, Some(FileType::Directory)) => {
                    let text = format!("`{}` is a folder on one side only: it is not replaced", shown(path));
                    return Err(HttpError::new(400, text));
                }
                (FileType::Directory, None) => {
                    let mode = u16::try_from(coming.st_mode & 0o7777).unwrap_or(0);
                    self.step(path, false, (mode & 0o200 == 0).then_some(mode))?;
                }
                (_, there) => self.step(path, there.is_some(), None)?,
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn step(&mut self, path: &[u8], replaces: bool, closed: Option<u16>) -> Result<(), HttpError> {
        self.bytes += path.len() + size_of::<Step>();
        if self.bytes > MAX_NAMES {
            let text = format!(
                "the names of what is moved into folders that exist take more than {MAX_NAMES} bytes: import to a folder that is new"
            );
            return Err(HttpError::new(413, text));
        }
        self.moves.push(Step { path: path.into(), replaces, closed });
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Roots<'a> {
    new: BorrowedFd<'a>,
    old: BorrowedFd<'a>,
    into: BorrowedFd<'a>,
}

impl Roots<'_> {
    fn make(&self, step: &Step, number: usize) -> rustix::io::Result<()> {
        let (from, to) = (folder(self.new, &step.path)?, folder(self.into, &step.path)?);
        let name = last(&step.path);
        if step.replaces {
            // First aside, then in its place: each is a step that can be taken back.
            renameat_with(&to, name, self.old, number.to_string(), RenameFlags::NOREPLACE)?;
            let moved = renameat_with(&from, name, &to, name, RenameFlags::NOREPLACE);
            if moved.is_err() {
                renameat_with(self.old, number.to_string(), &to, name, RenameFlags::NOREPLACE)?;
            }
            return moved;
        }
        let Some(mode) = step.closed else {
            return renameat_with(&from, name, &to, name, RenameFlags::NOREPLACE);
        };
        chmodat(&from, name, Mode::from_raw_mode(u32::from(mode) | 0o700), AtFlags::empty())?;
        renameat_with(&from, name, &to, name, RenameFlags::NOREPLACE)?;
        chmodat(&to, name, Mode::from_raw_mode(mode.into()), AtFlags::empty())
    }

    fn undo(&self, step: &Step, number: usize) -> rustix::io::Result<()> {
        let (from, to) = (folder(self.new, &step.path)?, folder(self.into, &step.path)?);
        let name = last(&step.path);
        if let Some(mode) = step.closed {
            chmodat(&to, name, Mode::from_raw_mode(u32::from(mode) | 0o700), AtFlags::empty())?;
        }
        renameat_with(&to, name, &from, name, RenameFlags::NOREPLACE)?;
        if step.replaces {
            renameat_with(self.old, number.to_string(), &to, name, RenameFlags::NOREPLACE)?;
        }
        Ok(())
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The folder that holds `path`. No link is followed on the way.
fn folder(root: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let mut folder = openat(root, c".", FOLDER, Mode::empty())?;
    let end = path.len() - last(path).len();
    for name in path[..end].split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        folder = openat(&folder, name, FOLDER, Mode::empty())?;
    }
    Ok(folder)
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn names(folder: BorrowedFd<'_>) -> rustix::io::Result<Vec<Box<[u8]>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            names.push(name.into());
        }
    }
    Ok(names)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn shown(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
