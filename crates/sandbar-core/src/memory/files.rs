use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use super::disk::{Body, Disk, DiskError, Node, NodeId, watch};
use super::fault::Fault;
use super::process::Content;
use super::sandbox::MemorySandbox;
use super::world::BACKEND;
use crate::{
    ByteStream, EntryKind, Error, ErrorKind, FileEntry, FileRange, FileRead, Files, GuestPath, ListOptions,
    ReadOptions, Result, UserName, WatchEvents, WatchOptions, Watching, WriteOptions,
};

/// Bytes of a file passed on at a time.
const CHUNK: usize = 65_536;

#[async_trait]
impl Files for MemorySandbox {
    async fn read_opts(&self, path: &GuestPath, options: ReadOptions) -> Result<FileRead> {
        let machine = self.running("read")?;
        let ReadOptions { range, user } = options;
        check_user("read", user.as_ref())?;
        let content = {
            let disk = machine.disk.lock();
            let node = disk.find(machine.root, path.as_bytes()).map_err(|why| refuse("read", path, why))?;
            match &disk.node(node).body {
                Body::File(content) => content.clone(),
                Body::Dir(_) => return Err(refuse("read", path, DiskError::IsADir)),
                Body::Link(_) | Body::Device(_) => {
                    return Err(
                        Error::invalid("read", format!("`{path}` is not a file")).with_backend(BACKEND)
                    );
                }
            }
        };
        let bytes = cut(Bytes::from_owner(Content(content)), range);
        let length = bytes.len() as u64;
        let body = stream::unfold(bytes, |mut rest| async move {
            if rest.is_empty() {
                return None;
            }
            let count = rest.len().min(CHUNK);
            Some((Ok(rest.split_to(count)), rest))
        });
        Ok(FileRead { body: body.boxed(), length: Some(length) })
    }

    async fn write_opts(
        &self,
        path: &GuestPath,
        mut body: ByteStream,
        options: WriteOptions,
    ) -> Result<FileEntry> {
        let machine = self.running("write")?;
        let WriteOptions { user } = options;
        let user = check_user("write", user.as_ref())?;
        let mut content = Vec::new();
        while let Some(chunk) = body.try_next().await? {
            content.extend_from_slice(&chunk);
        }
        // The body may have taken its time.
        let machine = self.running("write").map(|_| machine)?;
        let mut disk = machine.disk.lock();
        make_parent(&mut disk, machine.root, path, user).map_err(|why| refuse("write", path, why))?;
        let node = disk.replace(machine.root, path.as_bytes(), &content, user);
        node.map_err(|why| refuse("write", path, why))?;
        entry(&disk, machine.root, path)?.ok_or_else(|| refuse("write", path, DiskError::Missing))
    }

    async fn stat(&self, path: &GuestPath) -> Result<Option<FileEntry>> {
        let machine = self.running("stat")?;
        self.world.faults.check(Fault::Stat, "stat", &format!("`{path}`"))?;
        entry(&machine.disk.lock(), machine.root, path)
    }

    async fn list_opts(&self, path: &GuestPath, options: ListOptions) -> Result<Vec<FileEntry>> {
        let machine = self.running("list")?;
        let ListOptions { depth } = options;
        if depth == 0 {
            return Err(Error::invalid("list", "depth 0 is not valid: expected at least 1"));
        }
        let disk = machine.disk.lock();
        let folder = disk.find(machine.root, path.as_bytes()).map_err(|why| refuse("list", path, why))?;
        if !disk.node(folder).is_dir() {
            return Err(refuse("list", path, DiskError::NotADir));
        }
        let mut entries = Vec::new();
        let mut folders = vec![(folder, path.clone(), depth)];
        while let Some((folder, path, depth)) = folders.pop() {
            let Body::Dir(inside) = &disk.node(folder).body else { continue };
            for (name, node) in inside {
                let path = path.join(name)?;
                entries.extend(entry(&disk, machine.root, &path)?);
                // Links are told, not followed: a link to a folder above would never end.
                if depth > 1 && disk.node(*node).is_dir() {
                    folders.push((*node, path, depth - 1));
                }
            }
        }
        Ok(entries)
    }

    async fn make_dir(&self, path: &GuestPath) -> Result<bool> {
        let machine = self.running("make folder")?;
        let mut disk = machine.disk.lock();
        disk.make_dirs(machine.root, path.as_bytes(), "user").map_err(|why| refuse("make folder", path, why))
    }

    async fn rename(&self, from: &GuestPath, to: &GuestPath) -> Result<FileEntry> {
        let machine = self.running("rename")?;
        let mut disk = machine.disk.lock();
        disk.find_link(machine.root, from.as_bytes()).map_err(|why| refuse("rename", from, why))?;
        make_parent(&mut disk, machine.root, to, "user").map_err(|why| refuse("rename", to, why))?;
        let renamed = disk.rename(machine.root, from.as_bytes(), to.as_bytes());
        renamed.map_err(|why| refuse("rename", from, why))?;
        entry(&disk, machine.root, to)?.ok_or_else(|| refuse("rename", to, DiskError::Missing))
    }

    async fn remove(&self, path: &GuestPath) -> Result<bool> {
        let machine = self.running("remove")?;
        let mut disk = machine.disk.lock();
        match disk.remove(machine.root, path.as_bytes()) {
            Ok(()) => Ok(true),
            Err(DiskError::Missing | DiskError::NotADir) => Ok(false),
            Err(why) => Err(refuse("remove", path, why)),
        }
    }
}

#[async_trait]
impl Watching for MemorySandbox {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        let machine = self.running("watch")?;
        let mut disk = machine.disk.lock();
        let folder = disk.find(machine.root, path.as_bytes()).map_err(|why| refuse("watch", path, why))?;
        if !disk.node(folder).is_dir() {
            return Err(refuse("watch", path, DiskError::NotADir));
        }
        Ok(watch(&mut disk, folder, path.clone(), options))
    }
}

fn make_parent(disk: &mut Disk, root: NodeId, path: &GuestPath, owner: &str) -> Result<(), DiskError> {
    match path.parent() {
        Some(parent) => disk.make_dirs(root, parent.as_bytes(), owner).map(|_| ()),
        None => Err(DiskError::IsADir),
    }
}

fn check_user(operation: &'static str, user: Option<&UserName>) -> Result<&'static str> {
    match user.map_or("user", UserName::as_str) {
        "user" => Ok("user"),
        "root" => Ok("root"),
        other => Err(Error::invalid(operation, format!("user `{other}` does not exist in the sandbox"))
            .with_backend(BACKEND)),
    }
}

fn cut(bytes: Bytes, range: Option<FileRange>) -> Bytes {
    let Some(FileRange { start, length }) = range else { return bytes };
    let size = bytes.len();
    let start = usize::try_from(start).unwrap_or(size).min(size);
    let length = length.map_or(size, |length| usize::try_from(length).unwrap_or(size));
    bytes.slice(start..start.saturating_add(length).min(size))
}

/// What is at `path`, links followed; a link that leads nowhere is something of its own.
fn entry(disk: &Disk, root: NodeId, path: &GuestPath) -> Result<Option<FileEntry>> {
    let place = match disk.find_link(root, path.as_bytes()) {
        Ok(place) => place,
        Err(DiskError::Missing | DiskError::NotADir) => return Ok(None),
        Err(why) => return Err(refuse("stat", path, why)),
    };
    let Some(here) = place.node else { return Ok(None) };
    let there = disk.find(root, path.as_bytes()).unwrap_or(here);
    let link_target = match &disk.node(here).body {
        Body::Link(_) if there == here => Some(path.as_bytes().to_vec()),
        Body::Link(_) => disk.path_of(root, there),
        _ => None,
    };
    let Node { body, mode, owner, modified, .. } = disk.node(there);
    let kind = match body {
        Body::File(_) => EntryKind::File,
        Body::Dir(_) => EntryKind::Directory,
        Body::Link(_) | Body::Device(_) => EntryKind::Other,
    };
    Ok(Some(FileEntry {
        path: path.clone(),
        kind,
        size: disk.node(there).size(),
        mode: *mode,
        owner: owner.clone(),
        group: owner.clone(),
        modified: Some(*modified),
        link_target,
    }))
}

fn refuse(operation: &'static str, path: &GuestPath, why: DiskError) -> Error {
    let error = match why {
        DiskError::Missing => Error::not_found(operation, format!("`{path}`")),
        DiskError::NotADir => {
            Error::invalid(operation, format!("`{path}` is not a folder, or has a file above it"))
        }
        DiskError::IsADir => Error::invalid(operation, format!("`{path}` is a folder")),
        DiskError::Exists => {
            Error::new(ErrorKind::AlreadyExists, operation, format!("`{path}` exists already"))
        }
        DiskError::TooManyLinks => Error::invalid(operation, format!("`{path}` goes through too many links")),
        DiskError::Busy => {
            Error::new(ErrorKind::PermissionDenied, operation, format!("`{path}` is or holds a mount"))
        }
        DiskError::NotEmpty => {
            Error::invalid(operation, format!("the folder in the way of `{path}` is not empty"))
        }
        DiskError::IntoItself => Error::invalid(operation, format!("`{path}` can't be moved into itself")),
    };
    error.with_backend(BACKEND)
}
