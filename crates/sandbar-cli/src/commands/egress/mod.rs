//! What sandboxes can reach: shown, explained, tried.

mod log;
#[cfg(test)]
mod tests;
mod verify;
mod why;

use sandbar::SandboxProvider;

use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::Printer;
use crate::settings::EgressSettings;

pub(crate) async fn egress(
    provider: &dyn SandboxProvider,
    settings: EgressSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    match settings {
        EgressSettings::Log { id, options, which } => log::log(provider, &id, options, which, printer).await,
        EgressSettings::Why { id, peer, protocol } => why::why(provider, &id, peer, protocol, printer).await,
        EgressSettings::Verify(options) => verify::verify(provider, options, printer).await,
    }
}
