use std::future::pending;
use std::pin::pin;

use sandbar::{Sandbox, SandboxProvider, UserName};

use crate::commands::deadline::Deadline;
use crate::commands::exec::{Ran, command};
use crate::commands::interrupt::interrupted;
use crate::commands::make::{make, unmake};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::Printer;
use crate::relay::End;
use crate::settings::{After, ProcessSettings, RunSettings};
use crate::signals::Signals;
use crate::transfer::{Meter, copy_in, copy_out};
use crate::value::{CopyIn, CopyOut};

/// Makes a sandbox, runs the command in it, and destroys it, whatever happens in between, unless it is to be kept.
pub(crate) async fn run(
    provider: &dyn SandboxProvider,
    settings: RunSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let RunSettings { create, process, copies_in, copies_out, after } = settings;
    let deadline = Deadline::of(&create);
    let sandbox = make(provider, create, printer, &mut signals).await?;
    let sandbox = sandbox.as_ref();
    printer.detail(|| format!("created {}", sandbox.id()));
    let copies = (copies_in.as_slice(), copies_out.as_slice());
    let sleeps = async {
        match deadline {
            Some(deadline) => deadline.sleeps(provider, sandbox.id()).await,
            None => pending().await,
        }
    };
    let done = tokio::select! {
        biased;
        done = use_it(sandbox, process, copies, after, deadline, printer, &mut signals) => done,
        failure = sleeps => Err(failure),
    };
    match (after, done) {
        (After::Keep, Ok(status)) => {
            printer.note(&format!("kept sandbox {}", sandbox.id()));
            Ok(status)
        }
        (After::Keep, Err(failure)) => Err(match provider.describe(sandbox.id()).await {
            Ok(None) => failure,
            // Also where it can't be looked for: it was there, and nobody destroyed it.
            _ => failure.with_kept(sandbox.id().clone()),
        }),
        (After::Destroy, done) => match (done, unmake(sandbox, printer).await) {
            (done, Ok(())) => done,
            (Ok(_), Err(error)) => Err(error.into()),
            // The first failure decides; a sandbox that could not be destroyed is told of in any case.
            (Err(failure), Err(error)) => {
                printer.error(&error);
                Err(failure)
            }
        },
    }
}

/// Copies in, runs the command, copies out, and reports.
async fn use_it(
    sandbox: &dyn Sandbox,
    process: ProcessSettings,
    (copies_in, copies_out): (&[CopyIn], &[CopyOut]),
    after: After,
    deadline: Option<Deadline>,
    printer: Printer,
    signals: &mut Signals,
) -> Result<ExitStatus> {
    let explain = |failure: Failure| match deadline {
        Some(deadline) => deadline.explain(failure),
        None => failure,
    };
    let user = process.spawn.user.clone();
    let ran = before_and_command(sandbox, process, copies_in, printer, signals).await.map_err(explain)?;
    if let Some(deadline) = deadline.filter(|deadline| deadline.ended(ran.end)) {
        return Err(deadline.passed());
    }
    if after == After::Keep {
        ran.tell_the_way_back(sandbox, printer);
    }
    let copied = if matches!(ran.end, End::Interrupted(_) | End::Detached(_)) {
        Ok(())
    } else {
        afterwards(sandbox, copies_out, user.as_ref(), printer, signals).await.map_err(explain)
    };
    let status = ran.report(sandbox, printer)?;
    copied.map(|()| status)
}

async fn before_and_command(
    sandbox: &dyn Sandbox,
    process: ProcessSettings,
    copies: &[CopyIn],
    printer: Printer,
    signals: &mut Signals,
) -> Result<Ran> {
    for copy in copies {
        let what = format!("copying {} into the sandbox", copy.source.display());
        let meter = Meter::default();
        let mut stop = pin!(async { interrupted(signals.next().await) });
        printer.progress_of(&what, &meter, copy_in(sandbox, copy, &meter, stop.as_mut())).await?;
    }
    command(sandbox, process, printer, signals).await
}

/// Copies out what was asked for; one that can't be copied does not keep the others. Several failures are told one by one.
async fn afterwards(
    sandbox: &dyn Sandbox,
    copies: &[CopyOut],
    user: Option<&UserName>,
    printer: Printer,
    signals: &mut Signals,
) -> Result<()> {
    let mut first = Ok(());
    for copy in copies {
        let what = format!("copying {} out of the sandbox", copy.source);
        let meter = Meter::default();
        let mut stop = pin!(async { interrupted(signals.next().await) });
        let work = copy_out(sandbox, copy, user, &meter, stop.as_mut());
        match printer.progress_of(&what, &meter, work).await {
            Err(failure) if matches!(failure.status, ExitStatus::Interrupted(_)) => return Err(failure),
            Err(failure) if first.is_ok() => first = Err(failure),
            Err(failure) => {
                if let Some(error) = failure.error {
                    printer.error(&error);
                }
            }
            Ok(()) => {}
        }
    }
    first
}
