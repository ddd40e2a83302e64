use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::ReadFlags;
use sandbar_wire::envd::{Code, EventType, FilesystemEvent, RpcError, WatchDirRequest};

use super::Context;
use super::entry::describe;
use super::error::failed;
use super::inotify::{Inotify, RawEvent};
use crate::paths;
use crate::users::Names;

/// Types of file systems whose changes by other machines go unseen: `f_type` of NFS, SMB, CIFS, Ceph, FUSE, 9p, AFS
/// (`linux/magic.h`).
const NETWORK_TYPES: [i64; 8] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x6573_5546, 0x0102_1997, 0x5346_414f];

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
    /// Folders by the kernel's number, relative to the root.
    folders: HashMap<i32, PathBuf>,
    /// What a scan of a new folder reported. The kernel may have queued the same creation, as the watch is set first;
    /// once its queue is empty, it has not.
    scanned: HashSet<(i32, OsString)>,
}

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
        let inotify = Inotify::new().map_err(|error| exhausted(&root, &error))?;
        let own_number = inotify.add(&root, true).map_err(|error| exhausted(&root, &error))?;
        let mut watch = Self {
            inotify,
            context,
            root,
            recursive: request.recursive,
            include_entry: request.include_entry,
            own_number,
            folders: HashMap::from([(own_number, PathBuf::new())]),
            scanned: HashSet::new(),
        };
        if watch.recursive {
            watch
                .add_below(Path::new(""), own_number, None)
                .map_err(|error| exhausted(&watch.root, &error))?;
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
        let is_last = events.is_empty();
        for event in events {
            self.translate(event, &names, &moves, &mut changes)?;
        }
        if is_last {
            self.scanned.clear();
        }
        Ok(Batch { changes, is_last })
    }

    fn translate(
        &mut self,
        event: RawEvent,
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
            self.folders.remove(&event.watch);
            if event.watch == self.own_number {
                changes.push(Change::Gone);
            }
            return Ok(());
        }
        let Some(folder) = self.folders.get(&event.watch).cloned() else { return Ok(()) };
        let Some(name) = event.name else {
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
        let path = folder.join(&name);
        let is_folder = flags.contains(ReadFlags::ISDIR);
        let seen = self.scanned.remove(&(event.watch, name));
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) && !seen {
            changes.push(self.change(&path, EventType::Create, names));
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            let to =
                moves.get(&event.cookie).and_then(|(watch, name)| Some(self.folders.get(watch)?.join(name)));
            changes.push(renamed(&path, to.as_deref()));
            if is_folder {
                self.forget_below(&path);
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
        // A scan that reported the folder has looked into it too.
        if self.recursive && is_folder && !seen && flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            let mut found = Vec::new();
            self.add(&path, Some(&mut found))?;
            for (path, has_content) in found {
                changes.push(self.change(&path, EventType::Create, names));
                if has_content {
                    changes.push(self.change(&path, EventType::Write, names));
                }
            }
        }
        Ok(())
    }

    fn change(&self, path: &Path, event_type: EventType, names: &Names) -> Change {
        let with_entry = self.include_entry
            && matches!(event_type, EventType::Create | EventType::Write | EventType::Chmod);
        let entry = if with_entry { describe(names, &self.root.join(path)).ok() } else { None };
        let (name, name_b64) = paths::text(path.as_os_str());
        let event = FilesystemEvent { name, event_type, entry, name_b64, ..FilesystemEvent::default() };
        Change::Event(Box::new(event))
    }

    /// Watches a folder and what is below it. `found` collects what exists there already, each with whether it is a
    /// file with content, whose write nobody may have seen.
    fn add(&mut self, folder: &Path, found: Option<&mut Vec<(PathBuf, bool)>>) -> io::Result<()> {
        match self.arm(folder)? {
            Some(watch) => self.add_below(folder, watch, found),
            None => Ok(()),
        }
    }

    /// Watches one folder; `None` where it vanished meanwhile.
    fn arm(&mut self, folder: &Path) -> io::Result<Option<i32>> {
        match self.inotify.add(&self.root.join(folder), false) {
            Ok(watch) => {
                self.folders.insert(watch, folder.to_owned());
                Ok(Some(watch))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Without recursion: whoever made the tree chose how deep it is.
    fn add_below(
        &mut self,
        top: &Path,
        watch: i32,
        mut found: Option<&mut Vec<(PathBuf, bool)>>,
    ) -> io::Result<()> {
        let mut pending = vec![(top.to_owned(), watch)];
        while let Some((folder, watch)) = pending.pop() {
            self.scan(&folder, watch, found.as_deref_mut(), &mut pending)?;
        }
        Ok(())
    }

    /// Looks into a watched folder and watches the folders in it, which it adds to `pending`.
    fn scan(
        &mut self,
        folder: &Path,
        watch: i32,
        mut found: Option<&mut Vec<(PathBuf, bool)>>,
        pending: &mut Vec<(PathBuf, i32)>,
    ) -> io::Result<()> {
        let listing = match fs::read_dir(self.root.join(folder)) {
            Ok(listing) => listing,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for entry in listing {
            let Ok(entry) = entry else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            let path = folder.join(entry.file_name());
            if let Some(found) = found.as_deref_mut() {
                let has_content = kind.is_file() && entry.metadata().is_ok_and(|meta| meta.len() > 0);
                found.push((path.clone(), has_content));
                self.scanned.insert((watch, entry.file_name()));
            }
            if kind.is_dir()
                && let Some(inner) = self.arm(&path)?
            {
                pending.push((path, inner));
            }
        }
        Ok(())
    }

    /// Stops watching a folder that was moved away; where it was moved within the root, its new name is added again.
    fn forget_below(&mut self, folder: &Path) {
        let gone: Vec<i32> = self
            .folders
            .iter()
            .filter(|(_, path)| path.starts_with(folder))
            .map(|(watch, _)| *watch)
            .collect();
        for watch in gone {
            self.folders.remove(&watch);
            self.inotify.remove(watch);
        }
    }
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
            "watch '{}': the limit of inotify {} is reached; watch fewer folders or remove other watches",
            path.display(),
            if is(rustix::io::Errno::NOSPC) { "watches" } else { "instances" },
        );
        return RpcError::new(Code::ResourceExhausted, text);
    }
    failed("watch", path, error)
}
