use std::pin::pin;

use bytes::Bytes;
use futures::StreamExt;
use sandbar::{
    Error, ErrorKind, FileChange, FileChangeKind, GuestPath, SandboxExt, SandboxId, SandboxProvider, State,
    WatchEvents, WatchOptions,
};
use tokio::time::{Instant, sleep_until};

use crate::args::WatchArgs;
use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::require_or_absent;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{ChangeLine, Printer};
use crate::signals::Signals;
use crate::stdio::{Output, Stream};

const WATCH: &str = "watch";

pub(crate) async fn watch(
    provider: &dyn SandboxProvider,
    args: WatchArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let WatchArgs { id, path, recursive, count, timeout } = args;
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout.0));
    let options = if recursive { WatchOptions::Recursive } else { WatchOptions::Folder };
    let sandbox = or_interrupt(&mut signals, require_or_absent(provider, &id, WATCH)).await?;
    let armed = async {
        sandbox.require_watching()?.watch(&path, options).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::new(ExitStatus::Absent, error),
            _ => error.into(),
        })
    };
    let changes = or_interrupt(&mut signals, armed).await?;
    printer.note(&format!("watching {path}"));
    let mut out =
        Lines { output: Output::new(Stream::Stdout), json: printer.json(), left: count.map(u64::from) };
    out.write(&ChangeLine::Armed(&path)).await?;
    let ended = {
        let told = tell(changes, &mut out);
        tokio::select! {
            biased;
            signal = signals.next() => Ended::Asked(ExitStatus::Interrupted(signal.0)),
            ended = told => ended?,
            () = at(until) => Ended::TimeOver,
            () = Output::reader_gone(Stream::Stdout) => Ended::Asked(ExitStatus::ReaderGone),
        }
    };
    let unmet = out.left.is_some_and(|left| left > 0);
    let status = match ended {
        Ended::Asked(status) => status,
        Ended::Counted => ExitStatus::Done,
        Ended::TimeOver => {
            if unmet {
                ExitStatus::TimedOut
            } else {
                ExitStatus::Done
            }
        }
        Ended::FolderGone => out.end(&format!("{path} is gone"), printer, unmet).await?,
        Ended::Broken(error) if error.kind() == ErrorKind::LimitExceeded => {
            out.write(&ChangeLine::Overflow).await?;
            out.output.finish().await.map_err(Failure::output)?;
            return Err(error.with_hint("some changes were lost: look at the folder again").into());
        }
        Ended::Broken(error) => match gone(provider, sandbox.id()).await {
            Some(why) => out.end(why, printer, unmet).await?,
            None => return Err(error.into()),
        },
    };
    out.output.finish().await.map_err(Failure::output)?;
    Ok(status)
}

enum Ended {
    Asked(ExitStatus),
    Counted,
    TimeOver,
    FolderGone,
    Broken(Error),
}

/// Tells changes until there are no more or enough.
async fn tell(changes: WatchEvents, out: &mut Lines) -> Result<Ended> {
    let mut changes = pin!(changes);
    // The other half of a rename that was told.
    let mut renamed: Option<GuestPath> = None;
    while let Some(change) = changes.next().await {
        let change = match change {
            Ok(change) => change,
            Err(error) => return Ok(Ended::Broken(error)),
        };
        let FileChange { kind, path, to } = &change;
        if *kind == FileChangeKind::Create && renamed.take().as_ref() == Some(path) {
            continue;
        }
        renamed.clone_from(to);
        out.write(&ChangeLine::Change(&change)).await?;
        if let Some(left) = &mut out.left {
            *left -= 1;
            if *left == 0 {
                return Ok(Ended::Counted);
            }
        }
    }
    Ok(Ended::FolderGone)
}

/// Why the sandbox has nothing more to tell, where that is positively so.
async fn gone(provider: &dyn SandboxProvider, id: &SandboxId) -> Option<&'static str> {
    match provider.describe(id).await {
        Ok(None) => Some("the sandbox is gone"),
        Ok(Some(record)) if matches!(record.state, State::Stopped | State::Destroying) => {
            Some("the sandbox has ended")
        }
        _ => None,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Lines on standard output, as they come.
struct Lines {
    output: Output,
    json: bool,
    /// Changes that are still to be told.
    left: Option<u64>,
}

impl Lines {
    async fn write(&mut self, line: &ChangeLine<'_>) -> Result<()> {
        let text = if self.json { Some(line.to_json()) } else { line.to_text() };
        let Some(text) = text else { return Ok(()) };
        self.output.write(Bytes::from(format!("{text}\n"))).await.map_err(Failure::output)
    }

    /// There is nothing more to tell, and nobody is to blame, unless more was asked for.
    async fn end(&mut self, why: &str, printer: Printer, unmet: bool) -> Result<ExitStatus> {
        self.write(&ChangeLine::End(why)).await?;
        printer.note(why);
        Ok(if unmet { ExitStatus::Absent } else { ExitStatus::Done })
    }
}
