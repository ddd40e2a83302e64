//! `kill -9` of the shim at random moments of a change.

use std::time::Duration;

use sandbar_core::{EgressPolicy, Sandbox, SandboxExt};

use crate::support::{Tries, end_shim, scene, size};

/// A change takes a few milliseconds; the moments are in it, and a bit before and after.
const LATEST: u64 = 6000;

#[test]
fn killed_in_a_change_the_policy_in_force_is_the_one_described() {
    scene("kills::killed_in_a_change_the_policy_in_force_is_the_one_described", async |scene| {
        let names = [scene.rig.host("a").0, scene.rig.host("b").0];
        // Rules enough that writing and routing take their time.
        let policies = names.each_ref().map(|name| {
            let more = (0..300).map(|n| format!("n{n}.test")).chain((0..100).map(|n| format!("11.0.2.{n}")));
            let rules: Vec<String> = more.chain([name.clone()]).collect();
            EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules")
        });
        let sandbox = scene.create(policies[0].clone()).await;
        let (mut old, mut new) = (0, 0);
        for round in 0..size(12) {
            let next = policies[(round + 1) % 2].clone();
            let (id, handle) = (sandbox.id().clone(), std::sync::Arc::clone(&sandbox));
            let wanted = next.clone();
            let changing = tokio::spawn(async move { handle.require_network()?.set_policy(wanted).await });
            tokio::time::sleep(Duration::from_micros(fastrand::u64(..LATEST))).await;
            end_shim(scene, &id).await;
            let set = changing.await.expect("no panic");
            let described = scene.provider_sees(&*sandbox).await.expect("a policy");
            assert!(policies.contains(&described), "round {round}: neither: {described:?}");
            if set.is_ok() {
                assert_eq!(described, next, "round {round}: it was said to be in force");
            }
            if described == next {
                new += 1;
            } else {
                old += 1;
            }
            agrees(&*sandbox, &names, &policies, &described, round).await;
        }
        println!("{old} times the old one, {new} times the new one");
    });
}

async fn agrees(
    sandbox: &dyn Sandbox,
    names: &[String; 2],
    policies: &[EgressPolicy; 2],
    described: &EgressPolicy,
    round: usize,
) {
    for (name, policy) in names.iter().zip(policies) {
        let got = sandbox.get(name, 80).await;
        let is_described = policy == described;
        assert_eq!(got == "200", is_described, "round {round}: {name}: {got}");
        assert!(is_described || got == "no such name", "round {round}: {name}: {got}");
    }
}
