//! Ten thousand rules.

use std::time::{Duration, Instant};

use sandbar_core::{Destination, EgressPolicy, ProviderExt, Query, SandboxExt, Verdict};

use crate::support::{Tries, scene};

const RULES: usize = 10_000;
/// For what waits for all rules to be sent, read and written; it takes a fraction of a second.
const PATIENT: Duration = Duration::from_secs(10);
/// For what should not notice them.
const PROMPT: Duration = Duration::from_secs(2);

fn timed<T>(begun: Instant, most: Duration, what: &str, value: T) -> T {
    let took = begun.elapsed();
    println!("{what}: {took:?}");
    assert!(took < most, "{what} took {took:?}");
    value
}

#[test]
fn ten_thousand_rules_are_a_policy_like_any_other() {
    scene("many::ten_thousand_rules_are_a_policy_like_any_other", async |scene| {
        let ((first, _), (last, _), raw) =
            (scene.rig.host("first"), scene.rig.host("last"), scene.rig.address());
        let policy = |own: &str| {
            let names = (0..RULES - 3000).map(|n| format!("host-{n}.example.test:443"));
            let wide = (0..1000).map(|n| format!("*.zone-{n}.test"));
            let ranges = (0..1998).map(|n| format!("11.{}.{}.0/24:5432", n / 250, n % 250));
            let rules: Vec<String> = std::iter::once(own.to_owned())
                .chain(names)
                .chain(wide)
                .chain(ranges)
                .chain([format!("{}:8000", raw.v4)])
                .collect();
            assert_eq!(rules.len(), RULES);
            EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules")
        };
        let begun = Instant::now();
        let sandbox = scene.create(policy(&first)).await;
        timed(begun, PATIENT, "create", ());
        let network = sandbox.require_network().expect("a network");
        let begun = Instant::now();
        let tried = sandbox
            .python(
                "show([get(sys.argv[1]), get(sys.argv[2], 8000), get(sys.argv[3])])",
                &[&first, &raw.v4.to_string(), &last],
            )
            .await;
        timed(begun, PROMPT * 2, "three tries", ());
        assert_eq!(tried, serde_json::json!(["200", "200", "no such name"]));

        let begun = Instant::now();
        network.set_policy(policy(&last)).await.expect("set");
        timed(begun, PATIENT, "set", ());
        assert_eq!(
            (sandbox.get(&first, 80).await, sandbox.get(&last, 80).await),
            ("no such name".into(), "200".into())
        );
        let begun = Instant::now();
        let described = scene.described(&*sandbox).await;
        timed(begun, PROMPT, "describe", ());
        assert_eq!(described.egress.policy, Some(policy(&last)));
        let begun = Instant::now();
        let listed = scene.provider().list_all(Query::new()).await.expect("a listing");
        timed(begun, PROMPT, "list", ());
        assert_eq!(listed.len(), 1);

        let name = |text: &str| Destination::Name(text.parse().expect("a name"));
        let address = |text: &str| Destination::Address(text.parse().expect("an address"));
        let begun = Instant::now();
        for (destination, port, verdict, rule) in [
            (name(&last), 443, Verdict::Allowed, Some(format!("{last}:80,443"))),
            (
                name("host-6999.example.test"),
                443,
                Verdict::Allowed,
                Some("host-6999.example.test:443".into()),
            ),
            (name("host-7000.example.test"), 443, Verdict::Denied, None),
            (name("host-0.example.test"), 80, Verdict::Denied, None),
            (name("a.b.zone-999.test"), 80, Verdict::Allowed, Some("*.zone-999.test:80,443".into())),
            (name("zone-999.test"), 80, Verdict::Denied, None),
            (address("11.7.247.9"), 5432, Verdict::Allowed, Some("11.7.247.0/24:5432".into())),
            (address("11.7.248.9"), 5432, Verdict::Denied, None),
            (name(&first), 443, Verdict::Denied, None),
        ] {
            let explained = network
                .explain(destination.clone(), port, sandbar_core::Protocol::Tcp)
                .await
                .expect("an answer");
            assert_eq!(explained.verdict, verdict, "{destination}:{port}: {explained:?}");
            if rule.is_some() {
                assert_eq!(explained.rule, rule, "{destination}:{port}");
            }
        }
        timed(begun, PROMPT, "nine explanations", ());
    });
}

#[test]
fn the_largest_policy_there_may_be_is_taken_and_a_larger_one_is_refused_with_its_number() {
    scene(
        "many::the_largest_policy_there_may_be_is_taken_and_a_larger_one_is_refused_with_its_number",
        async |scene| {
            let long =
                |n: usize| format!("{}.{}.{}.{n:05}.test", "a".repeat(63), "b".repeat(63), "c".repeat(63));
            let most = sandbar_core::MAX_RULES;
            let rules: Vec<String> = (0..most).map(long).collect();
            let policy = EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules");
            let sandbox = scene.create(policy.clone()).await;
            let network = sandbox.require_network().expect("a network");
            network.set_policy(EgressPolicy::DenyAll).await.expect("set");
            network.set_policy(policy.clone()).await.expect("set");
            assert_eq!(network.policy().await.expect("a policy"), policy);
            let more: Vec<String> = (0..=most).map(long).collect();
            let more = EgressPolicy::allow(more.iter().map(String::as_str)).expect("rules");
            let error = network.set_policy(more).await.expect_err("too many");
            assert_eq!(error.kind(), sandbar_core::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&most.to_string()), "{error}");
            assert_eq!(network.policy().await.expect("a policy"), policy);
        },
    );
}
