use std::sync::Arc;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{FileChange, FileChangeKind, GuestPath, Result, WatchEvents, WatchOptions, Watching};
use sandbar_wire::envd::{EventType, FilesystemEvent, WatchDirEvent, WatchDirRequest};

use super::fault;
use super::files::{named, on};
use super::link::Link;
use super::processes::Shared;
use super::rpc::{Messages, Next};

const WATCH: &str = "watch";

#[async_trait]
impl Watching for Shared {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        let request = named(path);
        let message = WatchDirRequest {
            path: request.path,
            path_b64: request.path_b64,
            recursive: options == WatchOptions::Recursive,
            ..WatchDirRequest::default()
        };
        let link = Arc::clone(&self.0);
        let opened = link.open_stream("/filesystem.Filesystem/WatchDir", &message, None, None, WATCH).await?;
        let mut messages = opened.map_err(|error| on(path, fault::rpc(WATCH, &error)))?;
        // The first message says that the watch is armed.
        match link.first_of(&mut messages, WATCH).await? {
            Next::Message(payload) => match serde_json::from_slice(&payload) {
                Ok(WatchDirEvent::Start) => {}
                Ok(_) => return Err(fault::nonsense(WATCH, &"the first message is not the start")),
                Err(cause) => return Err(fault::nonsense(WATCH, &cause)),
            },
            Next::End(Some(error)) => return Err(on(path, fault::rpc(WATCH, &error))),
            Next::End(None) => return Err(fault::nonsense(WATCH, &"the stream ended before the start")),
            Next::Lost(failure) => return Err(link.lost(WATCH, failure).await),
            Next::Nonsense(why) => return Err(fault::nonsense(WATCH, &why)),
        }
        Ok(changes(link, messages, path.clone()))
    }
}

fn changes(link: Arc<Link>, messages: Messages, folder: GuestPath) -> WatchEvents {
    let state = Some((link, messages, folder));
    stream::unfold(state, |state| async move {
        let (link, mut messages, folder) = state?;
        loop {
            let failed = match messages.next().await {
                Next::Message(payload) => match serde_json::from_slice(&payload) {
                    Ok(WatchDirEvent::Filesystem(event)) => match change(&folder, &event) {
                        Ok(Some(change)) => return Some((Ok(change), Some((link, messages, folder)))),
                        Ok(None) => continue,
                        Err(error) => error,
                    },
                    Ok(_) => continue,
                    Err(cause) => fault::nonsense(WATCH, &cause),
                },
                Next::End(Some(error)) => fault::rpc(WATCH, &error),
                // The folder itself went away, and with it what there was to watch.
                Next::End(None) => return None,
                Next::Lost(failure) => link.lost(WATCH, failure).await,
                Next::Nonsense(why) => fault::nonsense(WATCH, &why),
            };
            return Some((Err(failed), None));
        }
    })
    .boxed()
}

/// A change in the contract's words; one of a kind that this version does not know is none.
fn change(folder: &GuestPath, event: &FilesystemEvent) -> Result<Option<FileChange>> {
    let kind = match event.event_type {
        EventType::Create => FileChangeKind::Create,
        EventType::Write => FileChangeKind::Write,
        EventType::Remove => FileChangeKind::Remove,
        EventType::Rename => FileChangeKind::Rename,
        EventType::Chmod => FileChangeKind::Chmod,
        EventType::Unspecified => return Ok(None),
    };
    let path = match &event.name_b64 {
        Some(name) => folder.join(name),
        None => folder.join(&event.name),
    };
    let to = match (&event.new_name_b64, &event.new_name) {
        (Some(name), _) => Some(folder.join(name)),
        (None, Some(name)) => Some(folder.join(name)),
        (None, None) => None,
    };
    let nonsense = |cause: sandbar_core::Error| fault::nonsense(WATCH, &cause);
    Ok(Some(FileChange { kind, path: path.map_err(nonsense)?, to: to.transpose().map_err(nonsense)? }))
}
