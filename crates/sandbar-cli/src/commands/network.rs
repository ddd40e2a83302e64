use sandbar::{EgressSummary, Error, ErrorKind, GatewayState, SandboxExt, SandboxProvider};

use crate::commands::resolve::{absent, require_or_absent};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{NetworkJson, Printer, network_text, print_bytes, print_json};
use crate::settings::NetworkSettings;

pub(crate) async fn network(
    provider: &dyn SandboxProvider,
    settings: NetworkSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let NetworkSettings { id, policy } = settings;
    let operation = if policy.is_some() { "set network" } else { "show network" };
    let sandbox = require_or_absent(provider, &id, operation).await?;
    let network = sandbox.require_network()?;
    let changes = policy.is_some();
    if let Some(policy) = policy {
        let changing = network.set_policy(policy);
        printer.progress("changing what it may reach", changing).await.map_err(|error| {
            match error.kind() {
                // What was typed can't be had; nothing was changed.
                ErrorKind::InvalidInput => Failure::usage(error),
                _ => absent(error),
            }
        })?;
    }
    let look = async {
        // To be asked brings back a gateway that is gone, so that the record is looked at after it: all of it tells of the same one.
        let (counters, policy) = (network.counters().await, network.policy().await);
        let recorded = sandbox.record().await?.egress;
        let gateway = recorded.gateway;
        let policy = unless_down(policy, gateway)?.or(recorded.policy);
        let counters = unless_down(counters, gateway)?;
        Ok::<_, Error>((EgressSummary { policy, gateway }, counters))
    };
    let seen = printer.progress("asking the gateway", look).await;
    let (egress, counters) = seen.map_err(|error| {
        let hint = format!("the policy was changed; `sandbar network {}` shows it", sandbox.id());
        absent(if changes { error.with_hint(hint) } else { error })
    })?;
    if printer.json() {
        print_json(&NetworkJson::new(sandbox.id(), &egress, counters))?;
    } else {
        print_bytes(network_text(&egress, counters).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

/// What only a gateway that serves can answer is not known while it does not.
fn unless_down<T>(answer: Result<T, Error>, gateway: Option<GatewayState>) -> Result<Option<T>, Error> {
    match (answer, gateway) {
        (Ok(answer), _) => Ok(Some(answer)),
        (Err(error), Some(GatewayState::Down)) if error.kind() != ErrorKind::NotFound => Ok(None),
        (Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_of_a_gateway_that_is_down_nothing_is_known() {
        let fails = |kind| Err::<u8, _>(Error::new(kind, "count", "no answer"));
        let (serving, down) = (Some(GatewayState::Serving), Some(GatewayState::Down));
        assert_eq!(unless_down(Ok(1), down).unwrap(), Some(1));
        assert_eq!(unless_down(fails(ErrorKind::Unavailable), down).unwrap(), None);
        for gateway in [serving, None] {
            unless_down(fails(ErrorKind::Unavailable), gateway).unwrap_err();
        }
        // What is gone is not down.
        unless_down(fails(ErrorKind::NotFound), down).unwrap_err();
    }
}
