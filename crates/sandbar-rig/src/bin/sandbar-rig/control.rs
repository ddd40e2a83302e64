//! The control socket: tests ask, a line each.

use std::path::PathBuf;
use std::sync::Arc;

use sandbar_rig::wire::{Ask, LINE_LIMIT, LinkState, Reply};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::capture::Capture;
use crate::network;
use crate::serve::Services;
use crate::state::State;

/// What the control socket rules over.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) state: Arc<State>,
    pub(crate) capture: Arc<Capture>,
    pub(crate) services: Arc<Services>,
    link: Mutex<LinkState>,
}

impl Control {
    pub(crate) fn new(state: Arc<State>, capture: Arc<Capture>, services: Arc<Services>) -> Self {
        Self { state, capture, services, link: Mutex::new(LinkState::Up) }
    }

    /// Serves until the rig ends.
    pub(crate) async fn serve(self: Arc<Self>, listener: UnixListener) {
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok((stream, _)) = listener.accept().await else { continue };
            let control = Arc::clone(&self);
            tasks.spawn(async move { control.converse(stream).await });
        }
    }

    async fn converse(&self, stream: UnixStream) {
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        loop {
            let mut line = Vec::new();
            match (&mut reader).take(LINE_LIMIT).read_until(b'\n', &mut line).await {
                Ok(length) if length > 0 => {}
                _ => return,
            }
            let reply = match serde_json::from_slice(&line) {
                Ok(ask) => self.reply(ask).await.unwrap_or_else(Reply::Refused),
                Err(e) => Reply::Refused(format!("not a question: {e}")),
            };
            let Ok(mut text) = serde_json::to_vec(&reply) else { return };
            text.push(b'\n');
            if writer.write_all(&text).await.is_err() {
                return;
            }
        }
    }

    async fn reply(&self, ask: Ask) -> Result<Reply, String> {
        let state = &self.state;
        self.capture.drain();
        Ok(match ask {
            Ask::Address => Reply::Address(state.address()?),
            Ask::Zone { name, answers } => {
                state.publish(&name, answers);
                Reply::Done
            }
            Ask::Folder { host, folder } => {
                state.mount(&host, existing(folder)?);
                Reply::Done
            }
            Ask::Mark => Reply::Mark(state.ledger.mark()),
            Ask::Queries { since, name } => Reply::Queries(state.ledger.queries(since, name.as_deref())?),
            Ask::Arrivals { since, to } => Reply::Arrivals(state.ledger.arrivals(since, to)?),
            Ask::Connections { since, to } => Reply::Connections(state.ledger.connections(since, to)?),
            Ask::Requests { since, host } => Reply::Requests(state.ledger.requests(since, host.as_deref())?),
            Ask::Link { state } => {
                self.set_link(state).await?;
                Reply::Done
            }
            Ask::Reach { address, reach } => {
                let change = move || network::set_reach(address, reach);
                tokio::task::spawn_blocking(change).await.map_err(|e| e.to_string())??;
                Reply::Done
            }
            Ask::Listen { port } => {
                self.services.listen(port, state)?;
                Reply::Done
            }
        })
    }

    async fn set_link(&self, wanted: LinkState) -> Result<(), String> {
        let mut link = self.link.lock().await;
        if *link == wanted {
            return Ok(());
        }
        let change = move || match wanted {
            LinkState::Up => network::link_up(),
            LinkState::Down => network::link_down(),
        };
        tokio::task::spawn_blocking(change).await.map_err(|e| e.to_string())??;
        *link = wanted;
        Ok(())
    }
}

fn existing(folder: PathBuf) -> Result<PathBuf, String> {
    if folder.is_dir() { Ok(folder) } else { Err(format!("`{}` is not a folder", folder.display())) }
}
