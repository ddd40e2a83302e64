use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use jiff::Timestamp;
use sandbar_core::{
    Command, CreateOptions, EgressCheck, EgressPolicy, EgressVerdict, Error, LegClass, ProjectId, Result,
    RunOptions, Sandbox, VerifyOptions,
};

use super::verdict::nothing;
use super::{Leg, Seen, judge, legs};
use crate::{E2bProvider, E2bSandbox};

const OPERATION: &str = "verify";

/// How long a sandbox of the check may live if nobody ends it.
const LIFETIME: Duration = Duration::from_secs(300);

/// How long one leg may take, with the start of its command.
const LEG: Duration = Duration::from_secs(30);

#[async_trait]
impl EgressCheck for E2bProvider {
    /// Two sandboxes are made: one under the policy, and one under which nothing is denied, to see whether what is refused in the first could be reached
    /// at all.
    async fn verify(&self, options: VerifyOptions) -> Result<EgressVerdict> {
        let policy = options.policy.unwrap_or_else(|| self.config().egress());
        let legs = legs(&policy, options.extent);
        let (under, free) =
            futures::join!(self.try_under(policy, &legs), self.try_under(EgressPolicy::AllowAll, &legs));
        let under = match under {
            Ok(under) => under,
            Err(error) => {
                return Ok(nothing(
                    &format!("no sandbox could be made or used for the check: {error}"),
                    "look at the key and the account's limits, and whether the policy can be kept",
                ));
            }
        };
        let free = free.ok();
        Ok(verdict(&legs, under, free.as_deref()))
    }
}

/// Brings together what was seen under the policy and where nothing is denied.
fn verdict(legs: &[Leg], under: Vec<Seen>, free: Option<&[Seen]>) -> EgressVerdict {
    let reachable = |index: usize| free.is_some_and(|free| free.get(index) == Some(&Seen::Reached));
    let has_own_control = legs.iter().any(|leg| leg.class == LegClass::Control);
    let has_control = has_own_control || (0..legs.len()).any(reachable);
    let seen = legs.iter().zip(under).enumerate().map(|(index, (leg, seen))| {
        // With a control of its own a check needs no other; without, only what can be reached elsewhere says something.
        let is_dead_end =
            seen == Seen::Refused && leg.class == LegClass::Blocked && !has_own_control && !reachable(index);
        (leg.clone(), if is_dead_end { Seen::DeadEnd } else { seen })
    });
    judge(&seen.collect::<Vec<_>>(), has_control)
}

impl E2bProvider {
    /// Tries all legs in a sandbox made under the policy, which is gone afterwards.
    async fn try_under(&self, policy: EgressPolicy, legs: &[Leg]) -> Result<Vec<Seen>> {
        let project = ProjectId::new(format!("egress-probe-{}", Timestamp::now().as_millisecond()))?;
        let options = CreateOptions::new().with_project(project).with_egress(policy).with_deadline(LIFETIME);
        let sandbox = self.create_sandbox(options).await?;
        let seen = join_all(legs.iter().map(|leg| try_leg(&sandbox, leg))).await;
        // What was seen counts, also if the sandbox is left until its deadline.
        if let Err(error) = sandbox.destroy().await {
            tracing::warn!(sandbox = %sandbox.id(), %error, "a sandbox of the egress check is left until its deadline");
        }
        seen.into_iter().collect::<Result<_>>().map_err(|error: Error| error.with_operation(OPERATION))
    }
}

async fn try_leg(sandbox: &E2bSandbox, leg: &Leg) -> Result<Seen> {
    let command = Command::shell(leg.probe.script());
    let output = sandbox.commands().run_opts(&command, RunOptions::default().with_timeout(LEG)).await?;
    let text = output.stdout_lossy();
    Ok(read(&text))
}

/// What a script said. Anything that is neither of its words is no observation.
fn read(text: &str) -> Seen {
    let text = text.trim();
    match text.split_whitespace().next() {
        Some("reached") => Seen::Reached,
        Some("refused") if text == "refused" => Seen::Refused,
        _ => Seen::Untried(text.chars().take(100).collect()),
    }
}

#[cfg(test)]
mod tests {
    use sandbar_core::{Extent, VerdictState};

    use super::*;

    #[test]
    fn only_the_words_of_a_script_are_observations() {
        assert_eq!(read("reached 404\n"), Seen::Reached);
        assert_eq!(read("refused\n"), Seen::Refused);
        for odd in ["", "no curl\n", "refused reached", "REACHED"] {
            assert!(matches!(read(odd), Seen::Untried(_)), "{odd}");
        }
    }

    #[test]
    fn where_all_is_denied_the_control_is_a_sandbox_where_nothing_is() {
        let legs = legs(&EgressPolicy::DenyAll, Extent::Quick);
        let refused = || vec![Seen::Refused; legs.len()];
        let reached = vec![Seen::Reached; legs.len()];
        assert_eq!(verdict(&legs, refused(), Some(&reached)).state, VerdictState::Filtered);
        assert_eq!(verdict(&legs, refused(), None).state, VerdictState::Inconclusive);
        assert_eq!(verdict(&legs, refused(), Some(&refused())).state, VerdictState::Inconclusive);
        assert_eq!(verdict(&legs, reached, None).state, VerdictState::Open);
    }
}
