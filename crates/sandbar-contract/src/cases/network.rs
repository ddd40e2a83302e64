use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    Command, Decision, DecisionKind, DecisionOptions, DecisionReason, DenyRule, Destination, EgressPolicy,
    EgressRule, EgressRules, ErrorKind, Follow, HeaderInjection, Hostname, MAX_RULES, Network, Otherwise,
    Protocol, Result, RunOptions, Sandbox, Verdict,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{
    Checked, PATIENCE, ensure, ensure_eq, eventually, expect_error, fail, part, run, skip_unsupported,
};
use crate::harness::Feature;

group!("network";
    policy_is_the_one_of_the_record, set_replaces_the_policy, set_is_in_the_record, too_many_rules_change_nothing,
    what_can_not_be_enforced_is_refused_by_its_rule, value_of_a_header_is_not_read_back, policy_without_its_values_is_refused,
    explain_tells_allowed_from_denied, explain_follows_a_change, explain_counts_nothing, change_is_in_the_decisions,
    tail_and_since_leave_out_older_decisions, followed_decisions_come_and_end, denial_is_decided_counted_and_final,
    gone_sandbox_is_not_found,
);

/// A name of a domain that is nobody's (RFC 2606).
fn name(bed: &Bed<'_>, word: &str) -> String {
    format!("{}.test", bed.unique(word))
}

fn host(name: &str) -> Checked<Destination> {
    Ok(Destination::Name(Hostname::parse(name)?))
}

fn network(sandbox: &dyn Sandbox) -> Checked<&dyn Network> {
    part(sandbox.network(), sandbox, "network")
}

/// All decisions that are kept.
async fn told(network: &dyn Network, options: DecisionOptions) -> Checked<Vec<Decision>> {
    let all = network.decisions(options).await?.collect::<Vec<_>>().await;
    Ok(all.into_iter().collect::<Result<_>>()?)
}

async fn policy_is_the_one_of_the_record(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let policy = network(&*sandbox)?.policy().await?;
    ensure_eq!(sandbox.record().await?.egress.policy, Some(policy), "policy of the record");
    Ok(())
}

async fn set_replaces_the_policy(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let (one, other) = (name(bed, "one"), name(bed, "other"));
    for policy in [
        EgressPolicy::allow([one.as_str()])?,
        EgressPolicy::allow([other.as_str()])?,
        EgressPolicy::DenyAll,
        EgressPolicy::allow([one.as_str(), other.as_str()])?,
    ] {
        network.set_policy(policy.clone()).await?;
        ensure_eq!(network.policy().await?, policy, "policy");
    }
    Ok(())
}

async fn set_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let policy = EgressPolicy::allow([name(bed, "recorded").as_str()])?;
    network(&*sandbox)?.set_policy(policy.clone()).await?;
    ensure_eq!(sandbox.record().await?.egress.policy, Some(policy.clone()), "policy of the handle's record");
    ensure_eq!(bed.describe(sandbox.id()).await?.egress.policy, Some(policy), "policy that is described");
    Ok(())
}

async fn too_many_rules_change_nothing(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let policy = EgressPolicy::allow([name(bed, "before").as_str()])?;
    network.set_policy(policy.clone()).await?;
    let rule: EgressRule = name(bed, "many").parse()?;
    let many = EgressPolicy::rules(vec![rule; MAX_RULES + 1], Vec::new(), Otherwise::Deny);
    expect_error(network.set_policy(many).await, &[ErrorKind::InvalidInput], "too many rules")?;
    ensure_eq!(network.policy().await?, policy, "policy after the refusal");
    Ok(())
}

/// Rules that not every backend can enforce: each is enforced, or refused as a whole.
async fn what_can_not_be_enforced_is_refused_by_its_rule(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let fine: EgressRule = name(bed, "fine").parse()?;
    let mut before = EgressPolicy::DenyAll;
    network.set_policy(before.clone()).await?;
    let allowing = [
        "[2001:db8::/32]:443",
        "10.20.30.0/24:5432",
        "contract.test:1000-60000/udp",
        "*.contract.test:53/udp",
    ];
    let mut tries = Vec::new();
    for text in allowing {
        let rules = vec![fine.clone(), text.parse()?];
        tries.push((text, EgressPolicy::rules(rules, Vec::new(), Otherwise::Deny)));
    }
    let denied = "denied.contract.test";
    let deny = vec![denied.parse::<DenyRule>()?];
    tries.push((denied, EgressPolicy::rules(vec![fine], deny, Otherwise::Allow)));
    for (rule, policy) in tries {
        match network.set_policy(policy.clone()).await {
            Ok(()) => before = policy,
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Unsupported, format!("kind of the refusal of `{rule}`"));
                let words = error.to_string();
                ensure!(words.contains(rule), "the refusal does not name `{rule}`: {words}");
            }
        }
        ensure_eq!(network.policy().await?, before, format!("policy after `{rule}`"));
    }
    Ok(())
}

/// A policy that injects `secret`.
fn injecting(name: &str, secret: &str) -> Checked<EgressPolicy> {
    let rule = name.parse::<EgressRule>()?.with_header(HeaderInjection::new("x-contract", secret)?);
    Ok(EgressPolicy::rules(vec![rule], Vec::new(), Otherwise::Deny))
}

async fn value_of_a_header_is_not_read_back(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let secret = bed.unique("s3cret");
    skip_unsupported(network.set_policy(injecting(&name(bed, "api"), &secret)?).await)?;
    let record = bed.describe(sandbox.id()).await?;
    for (read, place) in [(Some(network.policy().await?), "policy"), (record.egress.policy, "record")] {
        let Some(EgressPolicy::Rules(EgressRules { allow, .. })) = read else {
            return fail(format!("the {place} has no rules"));
        };
        let [header] = allow.iter().flat_map(|rule| &rule.inject).collect::<Vec<_>>()[..] else {
            return fail(format!("the {place} does not have the one header"));
        };
        ensure_eq!(
            (header.header(), header.reveal()),
            ("x-contract", None),
            format!("header of the {place}")
        );
    }
    Ok(())
}

async fn policy_without_its_values_is_refused(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    skip_unsupported(network.set_policy(injecting(&name(bed, "api"), &bed.unique("s3cret"))?).await)?;
    let read = network.policy().await?;
    expect_error(network.set_policy(read).await, &[ErrorKind::InvalidInput], "a header without value")
        .map(drop)
}

async fn explain_tells_allowed_from_denied(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let (known, unknown) = (name(bed, "known"), name(bed, "unknown"));
    network.set_policy(EgressPolicy::allow([known.as_str()])?).await?;
    let allowed = network.explain(host(&known)?, 443, Protocol::Tcp).await?;
    ensure_eq!(
        (allowed.verdict, allowed.reason),
        (Verdict::Allowed, DecisionReason::Rule),
        "what is allowed"
    );
    ensure!(
        allowed.rule.as_ref().is_some_and(|rule| rule.contains(&known)),
        "the rule is not named: {allowed:?}"
    );
    let metadata = Destination::Address([169, 254, 169, 254].into());
    for (what, destination, port, protocol, reason) in [
        ("another name", host(&unknown)?, 443, Protocol::Tcp, DecisionReason::NotAllowed),
        ("another port", host(&known)?, 22, Protocol::Tcp, DecisionReason::PortNotAllowed),
        ("another protocol", host(&known)?, 443, Protocol::Udp, DecisionReason::PortNotAllowed),
        ("a name below it", host(&format!("a.{known}"))?, 443, Protocol::Tcp, DecisionReason::NotAllowed),
        ("a metadata address", metadata, 80, Protocol::Tcp, DecisionReason::ForbiddenAddress),
    ] {
        let denied = network.explain(destination, port, protocol).await?;
        ensure_eq!((denied.verdict, denied.reason), (Verdict::Denied, reason), what);
        ensure!(!denied.reason.may_retry(), "{what}: a retry may help: {denied:?}");
        let sentence = denied.sentence.to_lowercase();
        ensure!(
            sentence.contains("policy") || reason == DecisionReason::ForbiddenAddress,
            "{what}: who denies it? {sentence}"
        );
        ensure!(sentence.contains("retry"), "{what}: it does not say whether a retry helps: {sentence}");
    }
    Ok(())
}

async fn explain_follows_a_change(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let known = name(bed, "known");
    for (policy, verdict) in [
        (EgressPolicy::DenyAll, Verdict::Denied),
        (EgressPolicy::allow([known.as_str()])?, Verdict::Allowed),
        (EgressPolicy::allow([name(bed, "else").as_str()])?, Verdict::Denied),
    ] {
        network.set_policy(policy.clone()).await?;
        let explained = network.explain(host(&known)?, 443, Protocol::Tcp).await?;
        ensure_eq!(explained.verdict, verdict, format!("verdict under {policy:?}"));
    }
    Ok(())
}

async fn explain_counts_nothing(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let (counters, decisions) = (network.counters().await?, told(network, DecisionOptions::default()).await?);
    network.explain(host(&name(bed, "asked"))?, 443, Protocol::Tcp).await?;
    ensure_eq!(network.counters().await?, counters, "counters");
    ensure_eq!(told(network, DecisionOptions::default()).await?, decisions, "decisions");
    Ok(())
}

async fn change_is_in_the_decisions(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let before = told(network, DecisionOptions::default()).await?.len();
    network.set_policy(EgressPolicy::allow([name(bed, "new").as_str()])?).await?;
    let decisions = told(network, DecisionOptions::default()).await?;
    let [decision] = &decisions[before.min(decisions.len())..] else {
        return fail(format!("one change, and these decisions: {decisions:?}"));
    };
    ensure_eq!(
        (decision.kind, decision.reason),
        (DecisionKind::Policy, DecisionReason::PolicySet),
        "decision"
    );
    Ok(())
}

async fn tail_and_since_leave_out_older_decisions(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    for word in ["first", "second", "third"] {
        network.set_policy(EgressPolicy::allow([name(bed, word).as_str()])?).await?;
    }
    let all = told(network, DecisionOptions::default()).await?;
    ensure!(all.len() >= 3, "three changes, and these decisions: {all:?}");
    ensure!(all.is_sorted_by_key(|decision| decision.at), "they are not in their order: {all:?}");
    for count in [0, 1, 2] {
        let tail = told(network, DecisionOptions { tail: Some(count), ..DecisionOptions::default() }).await?;
        ensure_eq!(tail, all[all.len() - count..].to_vec(), format!("the last {count}"));
    }
    let since = all[all.len() - 1].at;
    let newest = told(network, DecisionOptions { since: Some(since), ..DecisionOptions::default() }).await?;
    let wanted: Vec<_> = all.into_iter().filter(|decision| decision.at >= since).collect();
    ensure_eq!(newest, wanted, "those since the last");
    Ok(())
}

async fn followed_decisions_come_and_end(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    let options = DecisionOptions { tail: Some(0), follow: Follow::Yes, ..DecisionOptions::default() };
    let mut decisions = network.decisions(options).await?;
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), decisions.next()).await.is_err(),
        "something comes, or it ends, while nothing is decided"
    );
    network.set_policy(EgressPolicy::allow([name(bed, "new").as_str()])?).await?;
    match tokio::time::timeout(PATIENCE, decisions.next()).await {
        Ok(Some(decision)) => ensure_eq!(decision?.kind, DecisionKind::Policy, "what comes"),
        other => return fail(format!("the change does not come: {other:?}")),
    }
    sandbox.destroy().await?;
    let rest = async { while let Some(Ok(_)) = decisions.next().await {} };
    ensure!(tokio::time::timeout(PATIENCE, rest).await.is_ok(), "it goes on after the end of the sandbox");
    Ok(())
}

/// Asks for a name, as every program does.
const ASKS: &str = "
import socket, sys
try:
    print(socket.gethostbyname(sys.argv[1]))
except OSError as error:
    print(type(error).__name__)
";

async fn denial_is_decided_counted_and_final(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let network = network(&*sandbox)?;
    bed.need(Feature::Python)?;
    network.set_policy(EgressPolicy::allow([name(bed, "known").as_str()])?).await?;
    let (unknown, before) = (name(bed, "unknown"), network.counters().await?);
    let asking = Command::new("python3").args(["-c", ASKS, &unknown]);
    let output = run(&*sandbox, &asking, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), "gaierror\n", "what the program gets");
    eventually("the denial in the decisions", || async {
        let decisions = told(network, DecisionOptions::default()).await?;
        let denial = decisions.iter().find(|decision| decision.name.as_deref() == Some(&unknown));
        let Some(denial) = denial else { return Ok(false) };
        ensure_eq!((denial.kind, denial.verdict), (DecisionKind::Dns, Verdict::Denied), "the decision");
        ensure!(!denial.reason.may_retry(), "a retry may help: {denial:?}");
        Ok(true)
    })
    .await?;
    let after = network.counters().await?;
    ensure!(after.denied > before.denied, "nothing was counted as denied: {before:?}, then {after:?}");
    ensure!(after.questions > before.questions, "no question was counted: {before:?}, then {after:?}");
    ensure_eq!((after.allowed, after.bytes_out), (before.allowed, before.bytes_out), "what was let through");
    Ok(())
}

async fn gone_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    network(&*shared)?;
    let sandbox = bed.fresh().await?;
    sandbox.destroy().await?;
    let network = network(&*sandbox)?;
    let gone = &[ErrorKind::NotFound];
    expect_error(network.policy().await, gone, "its policy")?;
    expect_error(network.set_policy(EgressPolicy::DenyAll).await, gone, "another policy for it")?;
    expect_error(network.counters().await, gone, "its counters")?;
    let explained = network.explain(host(&name(bed, "asked"))?, 443, Protocol::Tcp).await;
    expect_error(explained, gone, "an explanation")?;
    match network.decisions(DecisionOptions::default()).await {
        Ok(_) => fail("its decisions are told"),
        Err(error) => expect_error::<()>(Err(error), gone, "its decisions").map(drop),
    }
}
