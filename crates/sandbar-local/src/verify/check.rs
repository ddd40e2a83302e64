use std::fmt::Write as _;
use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{
    CreateOptions, EgressCheck, EgressLeg, EgressPolicy, EgressVerdict, Error, ErrorKind, LegClass,
    LegOutcome, Lifetime, Result, Sandbox, SandboxProvider, VerdictState, VerifyOptions,
};

use super::host_post::HostPost;
use super::leg::{Plan, Seen};
use super::neighbour::{self, LIFETIME};
use super::policy_view::{AllowedName, PolicyView};
use super::run;
use super::surroundings::{KNOWN_NAMES, Surroundings, allows_every_address, denied_name};
use super::verdict::{Why, verdict};
use crate::error::io_error;
use crate::provider::LocalProvider;

const OPERATION: &str = "verify egress";

#[async_trait]
impl EgressCheck for LocalProvider {
    /// Two sandboxes are made: the one that is looked at, and a neighbour with a published port. For that time this host listens on free ports of
    /// its own addresses. Attempts are made inside as `user` and as `root` where there is one, and the host makes those that show that a target
    /// is there.
    async fn verify(&self, options: VerifyOptions) -> Result<EgressVerdict> {
        let VerifyOptions { policy, extent } = options;
        let policy = policy.unwrap_or_default();
        policy.check(OPERATION)?;
        let post =
            HostPost::open().await.map_err(|cause| io_error(OPERATION, "the host's own services", cause))?;
        let subject = CreateOptions::new()
            .with_egress(policy.clone())
            .with_deadline(LIFETIME)
            .with_lifetime(Lifetime::Owned);
        let subject = match self.create(subject).await {
            Ok(subject) => subject,
            // A policy that this backend can't enforce is the caller's matter.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                return Err(error);
            }
            Err(error) => return Ok(not_made(&error)),
        };
        let beside = neighbour::create(self).await;
        let seen = observe(&*subject, &beside, &post, &policy, extent).await;
        // Both go whatever was seen; the first failure is told, since the other has the same cause.
        let gone = [Some(&subject), beside.as_ref().ok().map(|(sandbox, _)| sandbox)].into_iter().flatten();
        let mut left = Ok(());
        for sandbox in gone {
            left = left.and(sandbox.destroy().await.map(drop));
        }
        left?;
        Ok(match seen {
            Ok((plan, seen)) => told(&plan, &seen, &policy, beside.err().as_ref()),
            Err(error) => not_made(&error),
        })
    }
}

type Beside = Result<(Arc<dyn Sandbox>, String)>;

async fn observe(
    subject: &dyn Sandbox,
    beside: &Beside,
    post: &HostPost,
    policy: &EgressPolicy,
    extent: sandbar_core::Extent,
) -> Result<(Plan, Seen)> {
    let served = match beside {
        // Without its service the leg has nothing to be tried at, which makes it a leg that was not tried.
        Ok((sandbox, token)) => neighbour::served(&**sandbox, token.clone()).await.ok(),
        Err(_) => None,
    };
    let plan = Plan::new(extent, &Surroundings::of(policy, post.listeners(), served));
    let attempts = plan.inside();
    let (inside, host) = futures::join!(run::inside(subject, &attempts), run::outside(plan.outside()));
    Ok((plan, Seen { inside: inside?, host: host? }))
}

/// The verdict in words.
fn told(plan: &Plan, seen: &Seen, policy: &EgressPolicy, no_neighbour: Option<&Error>) -> EgressVerdict {
    let (there, absent): (Vec<_>, Vec<_>) =
        plan.judge(seen).into_iter().partition(|(_, judged)| judged.is_some());
    let absent: Vec<_> = absent.into_iter().map(|(leg, _)| leg).collect();
    let (mut legs, judged): (Vec<_>, Vec<_>) = there.into_iter().unzip();
    let judged: Vec<_> = judged.into_iter().flatten().collect();
    let why = verdict(&judged);
    let names = |wanted: fn(&EgressLeg) -> bool| named(legs.iter().filter(|leg| wanted(leg)));
    let leaks = names(|leg| leg.outcome == LegOutcome::Reached && leg.class != LegClass::Control);
    let untested = names(|leg| leg.outcome == LegOutcome::Untested);
    let denied = legs.iter().filter(|leg| leg.class != LegClass::Control).count();
    let mut detail = match why {
        Why::AllRefused => {
            let refused = legs.iter().filter(|leg| leg.outcome == LegOutcome::Refused).count();
            format!("{refused} of {denied} ways out were tried and refused while this host could take them")
        }
        Why::Leak => format!("reached: {leaks}"),
        Why::NoControl => {
            let missed = names(|leg| leg.class == LegClass::Control && leg.outcome != LegOutcome::Reached);
            format!("what has to be reached was not ({missed}), so that refusals say nothing")
        }
        Why::NotTried if denied_name(PolicyView::of(policy)).is_none() => format!(
            "the policy speaks of each of the names that a denial could be shown with ({}), or of all beside or below them",
            KNOWN_NAMES.join(", ")
        ),
        Why::NotTried => "not every way out was tried inside".to_owned(),
        Why::HostCutOff => {
            "this host itself could not take ways out that it has to, so that their refusal says nothing"
                .to_owned()
        }
    };
    if !untested.is_empty() {
        let meaning = match why {
            Why::AllRefused => "tried inside and refused, but not there for this host either",
            _ => "untested",
        };
        // Writing to a string can't fail.
        let _ = write!(detail, "; {meaning}: {untested}");
    }
    if let Some(error) = no_neighbour {
        let _ = write!(detail, "; no second sandbox: {error}");
    }
    if !absent.is_empty() {
        let _ = write!(
            detail,
            "; not tried, for want of anything in this policy or on this host to try them at: {}",
            named(&absent)
        );
    }
    legs.extend(absent);
    EgressVerdict { state: why.state(), detail, remediation: remedy(why, policy), legs }
}

fn named<'a>(legs: impl IntoIterator<Item = &'a EgressLeg>) -> String {
    legs.into_iter().map(|leg| leg.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn remedy(why: Why, policy: &EgressPolicy) -> Option<String> {
    let view = PolicyView::of(policy);
    let text = match why {
        Why::AllRefused => return None,
        Why::Leak if view.is_open(policy) || allows_every_address(view) => {
            "this policy allows every public address: allow names instead, or nothing"
        }
        Why::Leak => {
            "run nothing here that must not reach the network, and report this with the output of `sandbar egress verify --full --json`"
        }
        Why::NoControl if view.allowed_name() == AllowedName::Injected => {
            "the gateway speaks for each host that this policy spells out, so that no answer is certain to be the host's: verify the same rules without their headers"
        }
        Why::NoControl => {
            "see whether the allowed name answers from this host, and what `sandbar doctor` says of the packet filter; then verify again"
        }
        Why::NotTried if denied_name(view).is_none() => {
            "allow narrower names than whole top-level domains; what one name comes to `sandbar egress why` says of a sandbox that has the policy"
        }
        Why::NotTried => "see the legs that were not tried, and verify again",
        Why::HostCutOff => {
            "verify again once this host reaches the network, or see which of the targets its own network filters"
        }
    };
    Some(text.to_owned())
}

/// No sandbox, no probe: nothing was observed.
fn not_made(error: &Error) -> EgressVerdict {
    let remediation = error.hint().unwrap_or("`sandbar doctor` says what sandboxes need of this machine");
    EgressVerdict {
        state: VerdictState::Inconclusive,
        detail: format!("nothing was tried: {error}"),
        remediation: Some(remediation.to_owned()),
        legs: Vec::new(),
    }
}
