use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use futures::{Stream, StreamExt as _};
use sandbar_core::{
    EntryKind, ErrorKind, FileChange, FileChangeKind, FileEntry, GuestPath, ListOptions, Sandbox, UserName,
    WatchEvents, WatchOptions,
};
use sandbar_wire::envd::{
    Code, Empty, EntryInfo, EntryResponse, EventType, FileType, FilesystemEvent, ListDirRequest,
    ListDirResponse, MoveRequest, PathRequest, RpcError, Timestamp, WatchDirEvent, WatchDirRequest,
};
use tokio::time::timeout;

use super::call::{Call, ended, failed, path, stream};
use super::unimplemented;

/// Serves `filesystem.Filesystem`.
pub(super) async fn serve(sandbox: Arc<dyn Sandbox>, method: &str, call: Call) -> Response {
    let user = call.user.clone();
    match method {
        "Stat" => call.answer(stat(&*sandbox, &call, user.as_ref()).await),
        "MakeDir" => call.answer(make_dir(&*sandbox, &call, user.as_ref()).await),
        "Move" => call.answer(rename(&*sandbox, &call, user.as_ref()).await),
        "ListDir" => call.answer(list(&*sandbox, &call, user.as_ref()).await),
        "Remove" => call.answer(remove(&*sandbox, &call, user.as_ref()).await),
        "WatchDir" => match watch(&*sandbox, &call, user.as_ref()).await {
            Ok((base, events, first)) => stream(told(base, events, first, call.keepalive)),
            Err(error) => ended(Some(&error)),
        },
        _ => call.answer::<Empty>(Err(unimplemented(&format!("`{method}`")))),
    }
}

async fn stat(
    sandbox: &dyn Sandbox,
    call: &Call,
    user: Option<&UserName>,
) -> Result<EntryResponse, RpcError> {
    let path = path(&call.message::<PathRequest>()?.path, user)?;
    Ok(EntryResponse { entry: entry(look(sandbox, &path).await?) })
}

async fn look(sandbox: &dyn Sandbox, path: &GuestPath) -> Result<FileEntry, RpcError> {
    let found = sandbox.files().stat(path).await.map_err(|e| failed(&e))?;
    found.ok_or_else(|| RpcError::new(Code::NotFound, format!("path '{}' does not exist", path.display())))
}

async fn make_dir(
    sandbox: &dyn Sandbox,
    call: &Call,
    user: Option<&UserName>,
) -> Result<EntryResponse, RpcError> {
    let path = path(&call.message::<PathRequest>()?.path, user)?;
    let exists = |what| RpcError::new(what, format!("path '{}' already exists", path.display()));
    match sandbox.files().make_dir(&path).await {
        Ok(true) => Ok(EntryResponse { entry: entry(look(sandbox, &path).await?) }),
        Ok(false) => Err(exists(Code::AlreadyExists)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(Code::InvalidArgument)),
        Err(error) => Err(failed(&error)),
    }
}

async fn rename(
    sandbox: &dyn Sandbox,
    call: &Call,
    user: Option<&UserName>,
) -> Result<EntryResponse, RpcError> {
    let request: MoveRequest = call.message()?;
    let (from, to) = (path(&request.source, user)?, path(&request.destination, user)?);
    let moved = sandbox.files().rename(&from, &to).await.map_err(|e| failed(&e))?;
    Ok(EntryResponse { entry: entry(moved) })
}

async fn list(
    sandbox: &dyn Sandbox,
    call: &Call,
    user: Option<&UserName>,
) -> Result<ListDirResponse, RpcError> {
    let request: ListDirRequest = call.message()?;
    let path = path(&request.path, user)?;
    if look(sandbox, &path).await?.kind != EntryKind::Directory {
        let text = format!("path '{}' is not a directory", path.display());
        return Err(RpcError::new(Code::InvalidArgument, text));
    }
    let options = ListOptions { depth: request.depth.max(1) };
    let entries = sandbox.files().list_opts(&path, options).await.map_err(|e| failed(&e))?;
    Ok(ListDirResponse { entries: entries.into_iter().map(entry).collect() })
}

/// What was not there is removed, too.
async fn remove(sandbox: &dyn Sandbox, call: &Call, user: Option<&UserName>) -> Result<Empty, RpcError> {
    let path = path(&call.message::<PathRequest>()?.path, user)?;
    sandbox.files().remove(&path).await.map(|_| Empty {}).map_err(|e| failed(&e))
}

async fn watch(
    sandbox: &dyn Sandbox,
    call: &Call,
    user: Option<&UserName>,
) -> Result<(GuestPath, WatchEvents, Vec<WatchDirEvent>), RpcError> {
    let request: WatchDirRequest = call.message()?;
    let path = path(&request.path, user)?;
    let part = sandbox.watching().ok_or_else(|| unimplemented("watching"))?;
    if look(sandbox, &path).await?.kind != EntryKind::Directory {
        let text = format!("path '{}' is not a directory", path.display());
        return Err(RpcError::new(Code::InvalidArgument, text));
    }
    let options = if request.recursive { WatchOptions::Recursive } else { WatchOptions::Folder };
    let events = part.watch(&path, options).await.map_err(|e| failed(&e))?;
    Ok((path, events, vec![WatchDirEvent::Start]))
}

/// Changes as they come, after what comes first.
fn told(
    base: GuestPath,
    events: WatchEvents,
    first: Vec<WatchDirEvent>,
    keepalive: Duration,
) -> impl Stream<Item = Result<WatchDirEvent, RpcError>> {
    let changes = futures::stream::unfold(Some(events), move |events| {
        let base = base.clone();
        async move {
            let mut events = events?;
            Some(match timeout(keepalive, events.next()).await {
                Err(_) => (Ok(WatchDirEvent::Keepalive), Some(events)),
                Ok(Some(Ok(change))) => (Ok(WatchDirEvent::Filesystem(event(&base, &change))), Some(events)),
                Ok(Some(Err(error))) => (Err(failed(&error)), None),
                Ok(None) => return None,
            })
        }
    });
    futures::stream::iter(first.into_iter().map(Ok)).chain(changes)
}

fn event(base: &GuestPath, change: &FileChange) -> FilesystemEvent {
    let relative = |path: &GuestPath| {
        let (whole, base) = (path.display().into_owned(), base.display().into_owned());
        let below = whole.strip_prefix(base.trim_end_matches('/')).map(|rest| rest.trim_start_matches('/'));
        below.map_or_else(|| whole.clone(), str::to_owned)
    };
    let event_type = match change.kind {
        FileChangeKind::Create => EventType::Create,
        FileChangeKind::Write => EventType::Write,
        FileChangeKind::Remove => EventType::Remove,
        FileChangeKind::Rename => EventType::Rename,
        FileChangeKind::Chmod => EventType::Chmod,
    };
    let new_name = change.to.as_ref().map(relative);
    FilesystemEvent { name: relative(&change.path), event_type, new_name, ..FilesystemEvent::default() }
}

/// An entry of the contract as the protocol has it.
pub(super) fn entry(found: FileEntry) -> EntryInfo {
    let path = found.path.display().into_owned();
    let is_link = found.link_target.is_some();
    let (file_type, letter) = match found.kind {
        EntryKind::File => (FileType::File, '-'),
        EntryKind::Directory => (FileType::Directory, 'd'),
        // SDKs pass over what has no type.
        EntryKind::Other => (FileType::Unspecified, '-'),
    };
    let letter = if is_link { 'L' } else { letter };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    let permissions = std::iter::once(letter)
        .chain(bits.map(|(bit, name)| if found.mode >> bit & 1 == 1 { name } else { '-' }))
        .collect();
    let link = found.link_target.map(|target| String::from_utf8_lossy(&target).into_owned());
    EntryInfo {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        file_type,
        path,
        size: i64::try_from(found.size).unwrap_or(i64::MAX),
        mode: found.mode & 0o777,
        permissions,
        owner: found.owner,
        group: found.group,
        modified_time: found.modified.and_then(|time| Timestamp::parse(&time.to_string())),
        symlink_target: link,
        ..EntryInfo::default()
    }
}
