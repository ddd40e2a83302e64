//! The verdicts.

use sandbar_core::{
    EgressCheck, EgressPolicy, EgressRules, EgressVerdict, Extent, LegOutcome, Otherwise, VerdictState,
    VerifyOptions,
};
use sandbar_rig::Rig;

use crate::bed::{Bed, allow, in_rig};
use crate::full;

async fn verdict(policy: EgressPolicy, extent: Extent) -> EgressVerdict {
    let bed = Bed::new();
    let verdict =
        bed.provider.verify(VerifyOptions { policy: Some(policy), extent }).await.expect("a verdict");
    bed.assert_empty();
    verdict
}

fn outcome(verdict: &EgressVerdict, name: &str) -> LegOutcome {
    verdict.legs.iter().find(|leg| leg.name == name).unwrap_or_else(|| panic!("no leg `{name}`")).outcome
}

#[test]
fn deny_all_is_filtered() {
    in_rig("verify::deny_all_is_filtered", async || {
        let rig = Rig::connect();
        full::outside(&rig);
        for extent in [Extent::Quick, Extent::Full] {
            let verdict = verdict(EgressPolicy::DenyAll, extent).await;
            assert_eq!(verdict.state, VerdictState::Filtered, "{verdict:#?}");
            assert!(verdict.remediation.is_none() && verdict.legs.len() >= 10, "{verdict:#?}");
            assert_eq!(outcome(&verdict, "allowed-name"), LegOutcome::Untested, "there is none");
            for leg in verdict.legs.iter().filter(|leg| leg.name != "control") {
                let is_absent = leg.outcome == LegOutcome::Untested && verdict.detail.contains(&leg.name);
                assert!(leg.outcome == LegOutcome::Refused || is_absent, "{leg:#?}: {}", verdict.detail);
            }
            assert_eq!(outcome(&verdict, "denied-name"), LegOutcome::Refused);
        }
    });
}

#[test]
fn rules_are_filtered_and_their_name_is_reached() {
    in_rig("verify::rules_are_filtered_and_their_name_is_reached", async || {
        let rig = Rig::connect();
        let allowed = full::outside(&rig);
        let verdict = verdict(allow([&*allowed, "10.20.0.0/16:5432"]), Extent::Quick).await;
        assert_eq!(verdict.state, VerdictState::Filtered, "{verdict:#?}");
        assert_eq!(outcome(&verdict, "allowed-name"), LegOutcome::Reached);
    });
}

#[test]
fn allow_all_is_open_and_the_host_is_still_closed() {
    in_rig("verify::allow_all_is_open_and_the_host_is_still_closed", async || {
        let rig = Rig::connect();
        full::outside(&rig);
        let wide = EgressPolicy::Rules(EgressRules { otherwise: Otherwise::Allow, ..EgressRules::default() });
        for policy in [EgressPolicy::AllowAll, wide] {
            let verdict = verdict(policy, Extent::Quick).await;
            assert_eq!(verdict.state, VerdictState::Open, "{verdict:#?}");
            assert_eq!(outcome(&verdict, "raw-ipv4"), LegOutcome::Reached, "{verdict:#?}");
            assert_eq!(outcome(&verdict, "denied-name"), LegOutcome::Reached, "{verdict:#?}");
            for closed in ["metadata", "host-loopback", "host-interfaces", "other-sandbox", "udp-53", "ipv6"]
            {
                assert_eq!(outcome(&verdict, closed), LegOutcome::Refused, "{verdict:#?}");
            }
            assert!(
                verdict.remediation.as_ref().is_some_and(|text| text.contains("allow names")),
                "{verdict:#?}"
            );
        }
    });
}

#[test]
fn a_control_that_is_down_leaves_it_inconclusive() {
    in_rig("verify::a_control_that_is_down_leaves_it_inconclusive", async || {
        let rig = Rig::connect();
        full::outside(&rig);
        let gone = rig.unique("gone");
        rig.zone(&gone).nxdomain().publish();
        let verdict = verdict(allow([&*gone]), Extent::Quick).await;
        assert_eq!(verdict.state, VerdictState::Inconclusive, "{verdict:#?}");
        assert_ne!(outcome(&verdict, "allowed-name"), LegOutcome::Reached);
        assert!(verdict.detail.contains("allowed-name") && verdict.remediation.is_some(), "{verdict:#?}");
    });
}

#[test]
fn an_allowed_name_is_tried_at_whatever_port_it_has() {
    in_rig("verify::an_allowed_name_is_tried_at_whatever_port_it_has", async || {
        let rig = Rig::connect();
        full::outside(&rig);
        let (gone, (there, _)) = (rig.unique("gone"), rig.host("there"));
        rig.zone(&gone).nxdomain().publish();
        rig.listen(8443);
        for port in [80, 443, 8443] {
            let missed = verdict(allow([&*format!("{gone}:{port}")]), Extent::Quick).await;
            assert_eq!(missed.state, VerdictState::Inconclusive, "{missed:#?}");
            let leg = missed.legs.iter().find(|leg| leg.name == "allowed-name").expect("its leg");
            assert!(leg.detail.contains(&format!("{gone}:{port} could not be reached as user")), "{leg:#?}");
            assert!(leg.detail.contains("nor by this host: "), "{leg:#?}");
            let reached = verdict(allow([&*format!("{there}:{port}")]), Extent::Quick).await;
            assert_eq!(reached.state, VerdictState::Filtered, "{reached:#?}");
            assert_eq!(outcome(&reached, "allowed-name"), LegOutcome::Reached, "{reached:#?}");
        }
        let patterns = verdict(allow(["*.wild.test"]), Extent::Quick).await;
        assert_eq!(patterns.state, VerdictState::Filtered, "{patterns:#?}");
        assert_eq!(outcome(&patterns, "allowed-name"), LegOutcome::Untested);
    });
}

#[test]
fn a_policy_that_opens_much_is_judged_by_what_it_leaves() {
    in_rig("verify::a_policy_that_opens_much_is_judged_by_what_it_leaves", async || {
        let rig = Rig::connect();
        full::outside(&rig);
        for open in ["0.0.0.0/0", "0.0.0.0/0:443"] {
            let open = verdict(allow([open]), Extent::Quick).await;
            assert_eq!(open.state, VerdictState::Open, "{open:#?}");
            assert_eq!(outcome(&open, "udp-53"), LegOutcome::Refused, "{open:#?}");
            assert!(open.remediation.as_ref().is_some_and(|text| text.contains("allow names")), "{open:#?}");
        }
        let part = verdict(allow(["1.1.1.0/24:443", "9.9.9.9", "8.0.0.0/8:any"]), Extent::Quick).await;
        assert_eq!(part.state, VerdictState::Filtered, "{part:#?}");
        let wide = verdict(allow(["*.com", "*.org", "*.net"]), Extent::Quick).await;
        assert_eq!(wide.state, VerdictState::Filtered, "{wide:#?}");
        let wider = verdict(allow(["*.com", "*.org", "*.net", "*.google", "*.one"]), Extent::Quick).await;
        assert_eq!(wider.state, VerdictState::Inconclusive, "{wider:#?}");
        assert!(wider.remediation.as_ref().is_some_and(|text| text.contains("narrower")), "{wider:#?}");
    });
}

#[test]
fn a_host_that_is_cut_off_leaves_it_inconclusive() {
    in_rig("verify::a_host_that_is_cut_off_leaves_it_inconclusive", async || {
        let rig = Rig::connect_alone();
        full::outside(&rig);
        rig.link_down();
        let verdict = verdict(EgressPolicy::DenyAll, Extent::Quick).await;
        rig.link_up();
        assert_eq!(verdict.state, VerdictState::Inconclusive, "{verdict:#?}");
        assert_eq!(outcome(&verdict, "raw-ipv4"), LegOutcome::Untested, "{verdict:#?}");
        assert_eq!(outcome(&verdict, "control"), LegOutcome::Reached, "the gateway needs no outside for it");
        assert!(verdict.detail.contains("raw-ipv4"), "{verdict:#?}");
    });
}
