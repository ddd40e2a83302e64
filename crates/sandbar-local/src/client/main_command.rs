use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{
    Error, ErrorKind, Follow, LogEvent, LogOptions, MainLogs, MainProcess, MainState, MainStatus, Result,
    State,
};

use super::Shared;
use super::following::{Following, STEP, read_aside, stream_of};
use super::link::Link;
use crate::ask::{ANSWER, misplaced};
use crate::config::BACKEND;
use crate::error::{gone, io_error};
use crate::home::{Folder, MainLogReader};
use crate::observe::Observed;
use crate::shim::protocol::{Op, Reply};
use crate::template::Base;

const LOOK: &str = "look at the main command";
const READ: &str = "read logs";

#[async_trait]
impl MainProcess for Shared {
    async fn status(&self) -> Result<Option<MainStatus>> {
        let seen = self.0.see(LOOK)?;
        if seen.record.main.is_none() || seen.state() != State::Running {
            return Ok(status_of(&seen));
        }
        match self.0.ask_shim(|| Op::Main, ANSWER, LOOK).await? {
            (Reply::Main(status), _) => Ok(status),
            _ => Err(misplaced(LOOK)),
        }
    }

    async fn logs(&self, options: LogOptions) -> Result<MainLogs> {
        let link = &self.0;
        let seen = link.see(READ)?;
        if seen.record.main.is_none() {
            let none = format!("a main command of sandbox `{}`", link.id());
            return Err(Error::not_found(READ, none).with_backend(BACKEND).with_hint(
                "`sandbar create … -- COMMAND` makes a sandbox with one; what other commands say comes with the commands",
            ));
        }
        if seen.state() == State::Running {
            // Whatever was said up to now is to be there, also where the shim has to be replaced first.
            link.ask_shim(|| Op::Main, ANSWER, READ).await?;
        }
        let folder = seen.folder;
        let (first, reader, folder) = read_aside(MainLogReader::default(), folder, READ).await?;
        let first = options.select(first);
        let following = (options.follow == Follow::Yes).then(|| FollowingLog {
            link: Arc::clone(link),
            folder,
            reader,
            options,
        });
        Ok(stream_of(first, following))
    }
}

impl Link {
    /// Looks; that there is none is an error.
    pub(super) fn see(&self, operation: &'static str) -> Result<Observed> {
        self.inner().look(self.id(), operation)?.ok_or_else(|| gone(operation, self.id().as_str()))
    }
}

fn status_of(seen: &Observed) -> Option<MainStatus> {
    seen.public(None::<&Base>).main
}

/// A reader of a log that grows.
struct FollowingLog {
    link: Arc<Link>,
    folder: Folder,
    reader: MainLogReader,
    options: LogOptions,
}

#[async_trait]
impl Following for FollowingLog {
    type Item = LogEvent;

    async fn next(&mut self) -> Result<(Vec<LogEvent>, bool)> {
        loop {
            let seen = self.link.inner().look(self.link.id(), READ)?;
            let goes_on = match &seen {
                None => false,
                Some(seen) if seen.state() != State::Running => false,
                Some(seen) => seen.record.main.as_ref().is_some_and(|main| main.state != MainState::Exited),
            };
            // Read after the look: what was said before the end is all there by now.
            let mut events =
                self.reader.read(&self.folder).map_err(|cause| io_error(READ, "`main.log`", cause))?;
            events.retain(|event| !matches!(event, LogEvent::Output(chunk) if !self.options.wants(chunk.at)));
            if !events.is_empty() || !goes_on {
                return Ok((events, goes_on));
            }
            if seen.is_some_and(|seen| !seen.guarded) {
                // Nobody writes the log any more: a new shim does.
                match self.link.live(READ).await {
                    Ok(_) => {}
                    // It ended meanwhile; the next look says so.
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Conflict) => {}
                    Err(error) => return Err(error),
                }
            }
            tokio::time::sleep(STEP).await;
        }
    }
}
