use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{FileChange, FileChangeKind, GuestPath, Result, WatchEvents, WatchOptions, Watching};
use sandbar_wire::envd::{EventType, FilesystemEvent, WatchDirEvent, WatchDirRequest};

use crate::client::GuestClient;
use crate::fault;
use crate::files::{named, on};
use crate::messages::{Messages, Next};
use crate::operation::Operation;

const WATCH: &str = "watch";

#[async_trait]
impl Watching for GuestClient {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        let operation = self.operation(WATCH);
        let request = named(path);
        let message = WatchDirRequest {
            path: request.path,
            path_b64: request.path_b64,
            recursive: options == WatchOptions::Recursive,
            ..WatchDirRequest::default()
        };
        let opened =
            self.open_stream("/filesystem.Filesystem/WatchDir", &message, None, None, operation).await?;
        let mut messages = opened.map_err(|error| on(path, fault::rpc(operation, &error)))?;
        // The first message says that the watch is armed.
        match self.first_of(&mut messages, operation).await? {
            Next::Message(payload) => match serde_json::from_slice(&payload) {
                Ok(WatchDirEvent::Start) => {}
                Ok(_) => return Err(fault::nonsense(operation, &"the first message is not the start")),
                Err(cause) => return Err(fault::nonsense(operation, &cause)),
            },
            Next::End(Some(error)) => return Err(on(path, fault::rpc(operation, &error))),
            Next::End(None) => return Err(fault::nonsense(operation, &"the stream ended before the start")),
            Next::Lost(failure) => return Err(self.lost(operation, failure).await),
            Next::Nonsense(why) => return Err(fault::nonsense(operation, &why)),
        }
        Ok(changes(self.clone(), messages, path.clone()))
    }
}

fn changes(client: GuestClient, messages: Messages, folder: GuestPath) -> WatchEvents {
    let operation = client.operation(WATCH);
    let state = Some((client, messages, folder));
    stream::unfold(state, move |state| async move {
        let (client, mut messages, folder) = state?;
        loop {
            let failed = match messages.next().await {
                Next::Message(payload) => match serde_json::from_slice(&payload) {
                    Ok(WatchDirEvent::Filesystem(event)) => match change(operation, &folder, &event) {
                        Ok(Some(change)) => return Some((Ok(change), Some((client, messages, folder)))),
                        Ok(None) => continue,
                        Err(error) => error,
                    },
                    Ok(_) => continue,
                    Err(cause) => fault::nonsense(operation, &cause),
                },
                Next::End(Some(error)) => fault::rpc(operation, &error),
                // The folder itself went away, and with it what there was to watch.
                Next::End(None) => return None,
                Next::Lost(failure) => client.lost(operation, failure).await,
                Next::Nonsense(why) => fault::nonsense(operation, &why),
            };
            return Some((Err(failed), None));
        }
    })
    .boxed()
}

/// A change in the contract's words; one of a kind that this version does not know is none.
fn change(operation: Operation, folder: &GuestPath, event: &FilesystemEvent) -> Result<Option<FileChange>> {
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
    let nonsense = |cause: sandbar_core::Error| fault::nonsense(operation, &cause);
    Ok(Some(FileChange { kind, path: path.map_err(nonsense)?, to: to.transpose().map_err(nonsense)? }))
}
