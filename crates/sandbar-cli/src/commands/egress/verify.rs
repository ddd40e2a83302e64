use sandbar::{ErrorKind, ProviderExt, SandboxProvider, VerdictState, VerifyOptions};

use crate::commands::interrupt::or_interrupt;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, VerdictJson, print_bytes, print_json, verdict_text};
use crate::signals::Signals;

pub(super) async fn verify(
    provider: &dyn SandboxProvider,
    options: VerifyOptions,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let verifying = provider.require_egress()?.verify(options);
    let verifying = async {
        printer.progress("trying what a sandbox can reach", verifying).await.map_err(|error| {
            match error.kind() {
                // What was typed can't be had; nothing was tried.
                ErrorKind::InvalidInput => Failure::usage(error),
                _ => error.into(),
            }
        })
    };
    let verdict = or_interrupt(&mut signals, verifying).await?;
    if printer.json() {
        print_json(&VerdictJson::from(&verdict))?;
    } else {
        print_bytes(verdict_text(&verdict).as_bytes())?;
    }
    Ok(status(verdict.state))
}

fn status(state: VerdictState) -> ExitStatus {
    match state {
        VerdictState::Filtered => ExitStatus::Done,
        VerdictState::Open => ExitStatus::Open,
        VerdictState::Inconclusive => ExitStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_observed_to_be_closed_is_success() {
        let codes = [VerdictState::Filtered, VerdictState::Open, VerdictState::Inconclusive];
        assert_eq!(codes.map(|state| status(state).code()), [0, 1, 125]);
    }
}
