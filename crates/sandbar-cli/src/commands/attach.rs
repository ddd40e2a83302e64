use std::time::Instant;

use sandbar::{
    Error, ErrorKind, ProcessInfo, ProcessInput, ProcessOrigin, Processes, SandboxExt, SandboxProvider, State,
};

use crate::args::AttachArgs;
use crate::commands::exec::Ran;
use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::require;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::Printer;
use crate::relay::{Hold, Input, Sink, Ties, relay};
use crate::signals::Signals;
use crate::stdio::Source;
use crate::terminal::{Keys, Screen, Told, is_terminal};

const ATTACH: &str = "attach";

/// Follows a process that somebody else started. It is never ended by this.
pub(crate) async fn attach(
    provider: &dyn SandboxProvider,
    args: AttachArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let pid = args.pid.get();
    let sandbox = or_interrupt(&mut signals, require(provider, &args.id, ATTACH)).await?;
    let sandbox = sandbox.as_ref();
    let part = sandbox.require_processes()?;
    let started = Instant::now();
    let info = or_interrupt(&mut signals, look(part, pid)).await?;
    if let Some(info) = &info
        && info.origin == ProcessOrigin::Inside
    {
        let message =
            format!("process {pid} was started inside the sandbox, and nobody outside holds its output");
        let hint = format!("`sandbar ps {} --started` shows what can be attached to", args.id);
        return Err(Error::conflict(ATTACH, State::Running, message).with_hint(hint).into());
    }
    let plan = plan(&args, info.and_then(|info| info.input), printer)?;
    let process = or_interrupt(&mut signals, async {
        part.attach(pid).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.with_hint(format!("`sandbar ps {}` shows what there is", args.id)),
            _ => error,
        })
    })
    .await?;
    let source = || Source::stdin().map_err(Failure::input);
    let (input, screen) = match plan {
        Plan::LookOn => (Input::None, None),
        Plan::Pass => (Input::Bytes(source()?), None),
        Plan::Take => {
            signals.catch_more()?;
            let keys = Keys::new(args.escape_char.unwrap_or_default());
            (Input::Typed(source()?, keys), Some(Screen::take(Told::Nothing)?))
        }
    };
    let mut sink = match plan {
        _ if printer.json() => Sink::capture(),
        Plan::Take => Sink::screen(),
        Plan::LookOn | Plan::Pass => Sink::pass(),
    };
    let ties = Ties { input, screen, limit: None, hold: Hold::Guest };
    let end = relay(process, &mut sink, ties, &mut signals).await?;
    let ran = Ran { end, pid, sink, duration: started.elapsed(), timeout: None };
    ran.tell_the_way_back(sandbox, printer);
    ran.report(sandbox, printer)
}

/// What is known of the process; nothing of one that ended lately, whose exit can still be had.
async fn look(part: &dyn Processes, pid: u32) -> Result<Option<ProcessInfo>, Error> {
    let all = match part.list_all().await {
        Err(error) if error.kind() == ErrorKind::Unsupported => part.list().await?,
        all => all?,
    };
    Ok(all.into_iter().find(|info| info.pid == pid))
}

/// What becomes of our own input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    LookOn,
    /// It goes to the process' standard input.
    Pass,
    /// The process gets the terminal.
    Take,
}

fn plan(args: &AttachArgs, input: Option<ProcessInput>, printer: Printer) -> Result<Plan> {
    let pid = args.pid;
    if args.no_stdin {
        return Ok(Plan::LookOn);
    }
    let usage = |message: String, hint: &str| {
        Err(Failure::usage(Error::invalid("parse arguments", message).with_hint(hint.to_owned())))
    };
    match input {
        Some(ProcessInput::Terminal) if printer.json() => usage(
            format!("process {pid} has a terminal, which can't be told as JSON while somebody types"),
            "give `--no-stdin` too, or leave out `--json`",
        ),
        Some(ProcessInput::Terminal) if is_terminal() => Ok(Plan::Take),
        Some(ProcessInput::Terminal) => usage(
            format!("process {pid} has a terminal, and standard input here is not one"),
            "run this from a terminal, or give `--no-stdin` to look on",
        ),
        Some(ProcessInput::Open) if args.interactive || is_terminal() => Ok(Plan::Pass),
        // Whether it keeps its input open is not known; writing to it tells.
        None if args.interactive => Ok(Plan::Pass),
        _ if args.interactive => {
            let message = format!("process {pid} keeps no standard input open");
            Err(Error::conflict(ATTACH, State::Running, message)
                .with_hint("leave out `-i` to look on")
                .into())
        }
        _ => Ok(Plan::LookOn),
    }
}
