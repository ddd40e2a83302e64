use sandbar::{Sandbox, SandboxProvider, UserName};

use crate::commands::exec::{Ran, command};
use crate::commands::interrupt::or_interrupt;
use crate::commands::make::{make, unmake};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::Printer;
use crate::relay::End;
use crate::settings::{After, ProcessSettings, RunSettings};
use crate::signals::Signals;
use crate::transfer::{copy_in, copy_out};
use crate::value::{CopyIn, CopyOut};

/// Makes a sandbox, runs the command in it, and destroys it, whatever happens in between.
pub(crate) async fn run(
    provider: &dyn SandboxProvider,
    settings: RunSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let RunSettings { create, process, copies_in, copies_out, after } = settings;
    let sandbox = make(provider, create, printer, &mut signals).await?;
    let sandbox = sandbox.as_ref();
    printer.detail(|| format!("created {}", sandbox.id()));
    let user = process.spawn.user.clone();
    let ran = before_and_command(sandbox, process, &copies_in, printer, &mut signals).await;
    let copied = match &ran {
        Ok(ran) if !matches!(ran.end, End::Interrupted(_)) => {
            afterwards(sandbox, &copies_out, user.as_ref(), printer, &mut signals).await
        }
        _ => Ok(()),
    };
    // A sandbox whose command never ran is of no use to anybody.
    let cleaned =
        if after == After::Destroy || ran.is_err() { unmake(sandbox, printer).await } else { Ok(()) };
    let status = match ran {
        Ok(ran) => ran.report(sandbox, printer),
        Err(failure) => Err(failure),
    };
    if after == After::Keep && status.is_ok() {
        printer.note(&format!("kept sandbox {}", sandbox.id()));
    }
    // The first failure decides; a sandbox that could not be destroyed is told of in any case.
    match (status.and_then(|status| copied.map(|()| status)), cleaned) {
        (done, Ok(())) => done,
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(failure), Err(error)) => {
            printer.error(&error);
            Err(failure)
        }
    }
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
        or_interrupt(signals, printer.progress(&what, copy_in(sandbox, copy))).await?;
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
        match or_interrupt(signals, printer.progress(&what, copy_out(sandbox, copy, user))).await {
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
