use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use sandbar_core::{
    Error, ErrorKind, Follow, LogEvent, LogOptions, MainLogs, MainProcess, MainState, MainStatus, Result,
    State,
};

use super::link::Link;
use super::processes::Shared;
use crate::ask::{ANSWER, misplaced};
use crate::config::BACKEND;
use crate::error::{fail, gone, io_error};
use crate::home::{Folder, MainLogReader};
use crate::observe::Observed;
use crate::shim::protocol::{Op, Reply};
use crate::template::Base;

const LOOK: &str = "look at the main command";
const READ: &str = "read logs";
/// Between two looks at a log that is followed: a person does not notice it, and a look is a few system calls.
const STEP: Duration = Duration::from_millis(100);

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
        let (first, reader, folder) = in_background(MainLogReader::default(), folder).await?;
        let first = stream::iter(options.select(first).into_iter().map(Ok));
        if options.follow == Follow::No {
            return Ok(first.boxed());
        }
        let following = Following { link: Arc::clone(link), folder, reader, options };
        let rest = stream::unfold(Some(following), |following| async move {
            let mut following = following?;
            match following.next().await {
                Ok((events, true)) => Some((events.into_iter().map(Ok).collect::<Vec<_>>(), Some(following))),
                Ok((events, false)) => Some((events.into_iter().map(Ok).collect(), None)),
                Err(error) => Some((vec![Err(error)], None)),
            }
        });
        Ok(first.chain(rest.flat_map(stream::iter)).boxed())
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
struct Following {
    link: Arc<Link>,
    folder: Folder,
    reader: MainLogReader,
    options: LogOptions,
}

impl Following {
    /// What was said since the last call, and whether more may come.
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

/// Reads all that is there, away from whoever serves other things: it may be much.
async fn in_background(
    mut reader: MainLogReader,
    folder: Folder,
) -> Result<(Vec<LogEvent>, MainLogReader, Folder)> {
    let work =
        tokio::task::spawn_blocking(move || reader.read(&folder).map(|events| (events, reader, folder)));
    match work.await {
        Ok(read) => read.map_err(|cause| io_error(READ, "`main.log`", cause)),
        Err(cause) => Err(fail(ErrorKind::Unexpected, READ, format!("the reader was lost: {cause}"))),
    }
}
