use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::ReadFlags;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbar_wire::envd::{Code, EventType, FilesystemEvent, RpcError, WatchDirRequest};

use super::Context;
use super::entry::describe;
use super::error::failed;
use super::folders::Folders;
use super::inotify::{Inotify, RawEvent};
use crate::paths;
use crate::users::Names;

/// Types of file systems whose changes by other machines go unseen: `f_type` of NFS, SMB, CIFS, Ceph, FUSE, 9p, AFS
/// (`linux/magic.h`).
const NETWORK_TYPES: [i64; 8] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x6573_5546, 0x0102_1997, 0x5346_414f];

/// Types of file systems whose entries the kernel makes up as they are looked at, and tells no change of: proc and sysfs.
const KERNEL_TYPES: [i64; 2] = [0x9fa0, 0x6265_6572];

/// What a watch reports.
pub(super) enum Change {
    Event(Box<FilesystemEvent>),
    /// The kernel's queue ran over: events are missing.
    Overflow,
    /// The watched folder is gone, or has another name: there is nothing more to tell.
    Gone,
}

/// How long the second half of a move may come after the first. The kernel queues one right after the other, but not both at once.
const HALF_MOVE: Duration = Duration::from_millis(10);

/// How often the names of now are looked up, with no event in between, before events are said to be lost: a name that changes
/// meanwhile makes an event, so that these looks fail for another reason.
const MAX_LOOKS: u32 = 16;
/// How long names may change too fast to be looked up before events are said to be lost: files that were missed are told no
/// later than this.
const MAX_UNSURE: Duration = Duration::from_secs(10);

/// Where moves went: the watched folder and the name in it, by the cookie that both halves have.
type Moves = HashMap<u32, (i32, OsString)>;

/// Some changes.
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    /// Nothing more is queued: the next read should wait until something is.
    pub(super) is_last: bool,
}

/// A watched folder, with everything below it where asked for.
pub(super) struct Watch {
    pub(super) inotify: Inotify,
    context: Context,
    root: PathBuf,
    recursive: bool,
    include_entry: bool,
    own_number: i32,
    folders: Folders,
    /// What a scan of a new folder reported. The kernel may have queued the same creation, as the watch is set first;
    /// once its queue is empty, it has not.
    scanned: HashSet<(i32, OsString)>,
    /// Moves whose folder kept its watch: their second half needs no look.
    followed: HashSet<u32>,
    /// Names changed faster than they could be looked at. Once the queue is empty, the names of now are looked up.
    unsure: bool,
    /// Looks in a row that left something open, without an event in between.
    looks: u32,
    /// Since when every look left something open.
    unsure_since: Option<Instant>,
}

/// What has a name now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Folder(i32),
    /// No folder.
    Nothing,
    /// The folder above is not where it was when the event happened.
    Elsewhere,
}

/// What was found in a new folder: each with whether it is a file with content, whose write nobody may have seen.
type Content = Vec<(PathBuf, bool)>;

impl Watch {
    /// Arms the watch.
    pub(super) fn new(context: Context, root: PathBuf, request: &WatchDirRequest) -> Result<Self, RpcError> {
        let meta = fs::metadata(&root).map_err(|error| failed("watch", &root, &error))?;
        if !meta.is_dir() {
            let text = format!("path '{}' is not a directory", root.display());
            return Err(RpcError::new(Code::InvalidArgument, text));
        }
        if !request.allow_network_mounts && is_network(&root) {
            let text = format!(
                "path '{}' is on a network file system, whose changes by others go unseen; set `allowNetworkMounts`",
                root.display()
            );
            return Err(RpcError::new(Code::InvalidArgument, text));
        }
        if rustix::fs::statfs(&root).is_ok_and(|stat| KERNEL_TYPES.contains(&stat.f_type)) {
            let text = format!(
                "path '{}' can't be watched: what the kernel shows there changes without telling anybody; read it again and again instead",
                root.display()
            );
            return Err(RpcError::new(Code::InvalidArgument, text));
        }
        let inotify = Inotify::new().map_err(|error| exhausted(&root, &error))?;
        let own_number = inotify.add(&root, true).map_err(|error| exhausted(&root, &error))?;
        let mut watch = Self {
            inotify,
            context,
            root,
            recursive: request.recursive,
            include_entry: request.include_entry,
            own_number,
            folders: Folders::new(own_number),
            scanned: HashSet::new(),
            followed: HashSet::new(),
            unsure: false,
            looks: 0,
            unsure_since: None,
        };
        if watch.recursive {
            watch.read_below(own_number, None).map_err(|error| exhausted(&watch.root, &error))?;
        }
        Ok(watch)
    }

    /// Turns a batch of queued events into changes. Waits for nothing.
    pub(super) fn read(&mut self) -> io::Result<Batch> {
        let mut events = self.inotify.read()?;
        let mut moves = moves(&events);
        let is_half = |event: &RawEvent| {
            event.flags.contains(ReadFlags::MOVED_FROM) && !moves.contains_key(&event.cookie)
        };
        if events.iter().any(is_half) {
            events.extend(self.inotify.read_soon(HALF_MOVE)?);
            moves = self::moves(&events);
        }
        let names = if self.include_entry { Names::load(&self.context.etc) } else { Names::default() };
        let mut changes = Vec::new();
        let mut is_last = events.is_empty();
        for event in events {
            self.translate(&event, &names, &moves, &mut changes)?;
        }
        if is_last {
            self.scanned.clear();
            self.followed.clear();
            if std::mem::take(&mut self.unsure) {
                self.look_again(&names, &mut changes)?;
                is_last = self.settle(&mut changes);
            }
        } else {
            self.looks = 0;
        }
        Ok(Batch { changes, is_last })
    }

    /// Whether the last look left nothing open, or there is no use in another one.
    fn settle(&mut self, changes: &mut Vec<Change>) -> bool {
        if self.unsure {
            let since = *self.unsure_since.get_or_insert_with(Instant::now);
            self.looks += 1;
            if self.looks < MAX_LOOKS && since.elapsed() < MAX_UNSURE {
                return false;
            }
            changes.push(Change::Overflow);
        }
        (self.unsure, self.looks, self.unsure_since) = (false, 0, None);
        true
    }

    fn translate(
        &mut self,
        event: &RawEvent,
        names: &Names,
        moves: &Moves,
        changes: &mut Vec<Change>,
    ) -> io::Result<()> {
        let flags = event.flags;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            changes.push(Change::Overflow);
            return Ok(());
        }
        if flags.contains(ReadFlags::IGNORED) {
            self.folders.remove(event.watch);
            if event.watch == self.own_number {
                changes.push(Change::Gone);
            }
            return Ok(());
        }
        if !self.folders.knows(event.watch) {
            return Ok(());
        }
        let Some(name) = event.name.clone() else {
            // A folder below reports itself through its parent too.
            if event.watch == self.own_number {
                let kinds =
                    [(ReadFlags::MOVE_SELF, EventType::Rename), (ReadFlags::DELETE_SELF, EventType::Remove)];
                for (_, kind) in kinds.iter().filter(|(flag, _)| flags.contains(*flag)) {
                    changes.push(self.change(Path::new("."), *kind, names));
                }
                if flags.contains(ReadFlags::MOVE_SELF) {
                    changes.push(Change::Gone);
                }
            }
            return Ok(());
        };
        let Some(path) = self.folders.path(event.watch).map(|folder| folder.join(&name)) else {
            // Where it happened is not known.
            changes.push(Change::Overflow);
            return Ok(());
        };
        let is_folder = self.recursive && flags.contains(ReadFlags::ISDIR);
        let is_new = flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let seen = self.scanned.remove(&(event.watch, name.clone()));
        if is_new && !seen {
            changes.push(self.change(&path, EventType::Create, names));
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            let to = moves.get(&event.cookie).filter(|(watch, _)| self.folders.knows(*watch));
            let to_path = to.and_then(|(watch, name)| Some(self.folders.path(*watch)?.join(name)));
            changes.push(renamed(&path, to_path.as_deref()));
            if is_folder {
                match to {
                    Some(to) => self.follow(event, &name, to)?,
                    None => self.leave(event.watch, &name)?,
                }
            }
        }
        if flags.contains(ReadFlags::ATTRIB) {
            changes.push(self.change(&path, EventType::Chmod, names));
        }
        if flags.contains(ReadFlags::MODIFY) {
            changes.push(self.change(&path, EventType::Write, names));
        }
        if flags.contains(ReadFlags::DELETE) {
            changes.push(self.change(&path, EventType::Remove, names));
        }
        let was_followed = flags.contains(ReadFlags::MOVED_TO) && self.followed.remove(&event.cookie);
        if is_folder && is_new && !was_followed {
            let mut found = Vec::new();
            self.enter(event.watch, &name, &mut found)?;
            self.tell(found, names, changes);
        }
        Ok(())
    }

    fn tell(&self, found: Content, names: &Names, changes: &mut Vec<Change>) {
        for (path, has_content) in found {
            changes.push(self.change(&path, EventType::Create, names));
            if has_content {
                changes.push(self.change(&path, EventType::Write, names));
            }
        }
    }

    fn change(&self, path: &Path, event_type: EventType, names: &Names) -> Change {
        let with_entry = self.include_entry
            && matches!(event_type, EventType::Create | EventType::Write | EventType::Chmod);
        let entry = if with_entry { describe(names, &self.root.join(path)).ok() } else { None };
        let (name, name_b64) = paths::text(path.as_os_str());
        let event = FilesystemEvent { name, event_type, entry, name_b64, ..FilesystemEvent::default() };
        Change::Event(Box::new(event))
    }

    /// A folder got another name within what is watched: its watch goes along, as do those below it.
    fn follow(&mut self, event: &RawEvent, name: &OsStr, to: &(i32, OsString)) -> io::Result<()> {
        let Some(watch) = self.folders.at(event.watch, name) else { return Ok(()) };
        let (parent, new_name) = (to.0, to.1.as_os_str());
        let now = self.look(parent, new_name)?;
        if now != Found::Folder(watch) {
            if self.look(event.watch, name)? == Found::Folder(watch) {
                // What was found under the old name is the next to have it, not the one that moved.
                return Ok(());
            }
            // It moved on since, or what is known by the old name is another.
            self.unsure = true;
        }
        if self.folders.place(watch, parent, new_name) {
            self.followed.insert(event.cookie);
        } else {
            self.unsure = true;
        }
        Ok(())
    }

    /// A folder was moved out of what is watched.
    fn leave(&mut self, parent: i32, name: &OsStr) -> io::Result<()> {
        let Some(watch) = self.folders.at(parent, name) else { return Ok(()) };
        // Else it is the next to have the name.
        if self.look(parent, name)? != Found::Folder(watch) {
            for gone in self.folders.below(watch) {
                self.forget(gone);
            }
        }
        Ok(())
    }

    fn forget(&mut self, watch: i32) {
        self.folders.remove(watch);
        self.inotify.remove(watch);
    }

    /// A folder appeared: watches it and what is below it.
    fn enter(&mut self, parent: i32, name: &OsStr, found: &mut Content) -> io::Result<()> {
        let Found::Folder(watch) = self.look(parent, name)? else { return Ok(()) };
        let is_known = self.folders.knows(watch);
        if !self.folders.place(watch, parent, name) {
            self.unsure = true;
        } else if !is_known {
            self.read_below(watch, Some(found))?;
        }
        Ok(())
    }

    /// Which folder has this name now; it is watched from here on.
    fn look(&mut self, parent: i32, name: &OsStr) -> io::Result<Found> {
        let Some(folder) = self.open(parent)? else {
            self.unsure = true;
            return Ok(Found::Elsewhere);
        };
        Ok(match open_at(folder.as_fd(), name)? {
            Some(inner) => Found::Folder(self.arm(&inner)?),
            None => Found::Nothing,
        })
    }

    /// Watches a folder that is open, so that its name does not matter. Its number is the same if it is watched already.
    fn arm(&self, folder: &OwnedFd) -> io::Result<i32> {
        self.inotify.add(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())), true)
    }

    /// A watched folder, where it still is what has its name.
    fn open(&self, watch: i32) -> io::Result<Option<OwnedFd>> {
        let Some(path) = self.folders.path(watch) else { return Ok(None) };
        let is_own = watch == self.own_number;
        let path = if is_own { self.root.clone() } else { self.root.join(path) };
        let Some(folder) = open_folder(rustix::fs::CWD, path.as_os_str(), is_own)? else { return Ok(None) };
        let number = self.arm(&folder)?;
        if number == watch {
            return Ok(Some(folder));
        }
        if !self.folders.knows(number) {
            self.inotify.remove(number);
        }
        Ok(None)
    }

    /// Looks into a watched folder and all below it, and watches the folders there. Without recursion: whoever made the
    /// tree chose how deep it is.
    fn read_below(&mut self, watch: i32, mut found: Option<&mut Content>) -> io::Result<()> {
        let mut pending = vec![watch];
        while let Some(watch) = pending.pop() {
            let Some(folder) = self.open(watch)? else {
                // Unknown, it is looked into when it is found again.
                if watch != self.own_number {
                    self.forget(watch);
                }
                self.unsure = true;
                continue;
            };
            for (name, kind) in list(&folder)? {
                if let Some(found) = found.as_deref_mut()
                    && let Some(path) = self.folders.path(watch)
                {
                    let has_content = kind == FileType::RegularFile && has_content(&folder, &name);
                    found.push((path.join(&name), has_content));
                    self.scanned.insert((watch, name.clone()));
                }
                if kind == FileType::Directory
                    && let Some(inner) = open_at(folder.as_fd(), &name)?
                {
                    let inner = self.arm(&inner)?;
                    let is_known = self.folders.knows(inner);
                    if !self.folders.place(inner, watch, &name) {
                        self.unsure = true;
                    } else if !is_known {
                        pending.push(inner);
                    }
                }
            }
        }
        Ok(())
    }

    /// Gives all folders the names that they have now, and tells what is in those that were missed.
    fn look_again(&mut self, names: &Names, changes: &mut Vec<Change>) -> io::Result<()> {
        let mut unmet: HashSet<i32> = self.folders.all().collect();
        let mut found = Vec::new();
        let mut pending = vec![self.own_number];
        while let Some(watch) = pending.pop() {
            let Some(folder) = self.open(watch)? else {
                self.unsure = true;
                continue;
            };
            for (name, kind) in list(&folder)? {
                if kind != FileType::Directory {
                    continue;
                }
                let Some(inner) = open_at(folder.as_fd(), &name)? else { continue };
                let inner = self.arm(&inner)?;
                let is_known = self.folders.knows(inner);
                if !self.folders.place(inner, watch, &name) {
                    // A folder above, mounted here. One that is moved here just now has its event still to come.
                } else if is_known {
                    // The same folder can be met twice: where it was moved meanwhile, or is mounted twice.
                    if unmet.remove(&inner) {
                        pending.push(inner);
                    }
                } else {
                    self.read_below(inner, Some(&mut found))?;
                }
            }
        }
        self.tell(found, names, changes);
        if !self.unsure {
            for gone in unmet {
                self.forget(gone);
            }
        }
        Ok(())
    }
}

/// A folder by its path; `None` where that leads to none.
fn open_folder(at: BorrowedFd<'_>, path: &OsStr, follow: bool) -> io::Result<Option<OwnedFd>> {
    let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    match rustix::fs::openat(at, path, flags, Mode::empty()) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A folder to watch; `None` where there is none.
fn open_at(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let inner = open_folder(folder, name, false)?;
    let is_told =
        |inner: &OwnedFd| !rustix::fs::fstatfs(inner).is_ok_and(|stat| KERNEL_TYPES.contains(&stat.f_type));
    Ok(inner.filter(is_told))
}

/// What is in a folder, with its kind.
fn list(folder: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    let listing = match Dir::read_from(folder) {
        Ok(listing) => listing,
        // It was removed meanwhile.
        Err(Errno::NOENT) => return Ok(entries),
        Err(error) => return Err(error.into()),
    };
    for entry in listing {
        let Ok(entry) = entry else { break };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system says it with the name.
            FileType::Unknown => rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

fn has_content(folder: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_size > 0)
}

fn renamed(from: &Path, to: Option<&Path>) -> Change {
    let (name, name_b64) = paths::text(from.as_os_str());
    let (new_name, new_name_b64) = to.map(|to| paths::text(to.as_os_str())).unzip();
    let (event_type, new_name_b64) = (EventType::Rename, new_name_b64.flatten());
    Change::Event(Box::new(FilesystemEvent {
        name,
        event_type,
        entry: None,
        name_b64,
        new_name,
        new_name_b64,
    }))
}

fn moves(events: &[RawEvent]) -> Moves {
    let arrivals = events.iter().filter(|event| event.flags.contains(ReadFlags::MOVED_TO));
    arrivals.filter_map(|event| Some((event.cookie, (event.watch, event.name.clone()?)))).collect()
}

fn is_network(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|stat| NETWORK_TYPES.contains(&stat.f_type))
}

/// Kernel limits are the usual reason why a watch can't be armed.
pub(super) fn exhausted(path: &Path, error: &io::Error) -> RpcError {
    let code = error.raw_os_error();
    let is = |errno: rustix::io::Errno| code == Some(errno.raw_os_error());
    if is(rustix::io::Errno::NOSPC) || is(rustix::io::Errno::MFILE) {
        let text = format!(
            "path '{}': the limit of inotify {} is reached; watch fewer folders or remove other watches",
            path.display(),
            if is(rustix::io::Errno::NOSPC) { "watches" } else { "instances" },
        );
        return RpcError::new(Code::ResourceExhausted, text);
    }
    if error.kind() == io::ErrorKind::PermissionDenied {
        let text = format!(
            "path '{}' can't be watched: it, or a folder in it, can't be read; watch a folder of your own",
            path.display()
        );
        return RpcError::new(Code::PermissionDenied, text);
    }
    failed("watch", path, error)
}
