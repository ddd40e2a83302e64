//! Many sandboxes with a policy each: none ever reaches by another's rule.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use sandbar_core::{CreateOptions, EgressPolicy, SandboxProvider};

use crate::support::{Tries, scene, size};

/// How many are made at once: the machine is shared.
const AT_ONCE: usize = 8;
/// How many others each tries.
const OTHERS: usize = 12;

/// Its own name and address, the names and addresses of others, and the first synthetic addresses, by the name of each.
const TRIES: &str = "me, own, own_raw = sys.argv[1], sys.argv[2], sys.argv[3]
others = [pair.split('=') for pair in sys.argv[4:]]
path = '/from-' + me
reached = [[get(own, 80, path), get(own_raw, 8000, path)]]
for name, raw in others:
    reached.append([get(name, 80, path, limit=1), get(raw, 8000, path, limit=1), get('198.18.1.0', 80, path, name, 1), get('198.18.1.1', 80, path, name, 1)])
show(reached)";

#[test]
fn none_reaches_by_the_rule_of_another() {
    scene("crowd::none_reaches_by_the_rule_of_another", async |scene| {
        let rig = &scene.rig;
        let count = size(24);
        let hosts: Vec<_> = (0..count).map(|n| (rig.host(&format!("own{n}")), rig.address())).collect();
        // One provider prepares sandboxes in advance, the other makes each anew.
        let providers = [scene.keeping(), scene.provider()];
        let made = stream::iter(0..count).map(|n| {
            let (hosts, provider) = (&hosts, &providers[n % 2]);
            async move {
                let ((name, _), raw) = &hosts[n];
                let policy =
                    EgressPolicy::allow([name.as_str(), &format!("{}:8000", raw.v4)]).expect("rules");
                let sandbox =
                    provider.create(CreateOptions::new().with_egress(policy)).await.expect("a sandbox");
                let others = (1..=OTHERS.min(count - 1))
                    .map(|step| (n + step * step) % count)
                    .filter(|other| *other != n);
                let others: Vec<String> =
                    others.map(|other| format!("{}={}", hosts[other].0.0, hosts[other].1.v4)).collect();
                let (own, raw, me) = (name.as_str(), raw.v4.to_string(), n.to_string());
                let mut arguments = vec![me.as_str(), own, raw.as_str()];
                arguments.extend(others.iter().map(String::as_str));
                let reached = sandbox.python(TRIES, &arguments).await;
                let reached = reached.as_array().expect("a list").clone();
                assert_eq!(reached[0], serde_json::json!(["200", "200"]), "{n} itself");
                for (other, got) in others.iter().zip(&reached[1..]) {
                    assert_eq!(
                        (&got[0], &got[1]),
                        (&"no such name".into(), &"ENETUNREACH".into()),
                        "{n} to {other}"
                    );
                    assert!(got[2] != "200" && got[3] != "200", "{n} to {other} by an address: {got}");
                }
                sandbox
            }
        });
        // All live until the last has tried.
        let sandboxes: Vec<_> = made.buffer_unordered(AT_ONCE).collect().await;
        for (n, ((name, at), raw)) in hosts.iter().enumerate() {
            let paths: HashSet<String> = rig.requests(name).into_iter().map(|request| request.path).collect();
            assert_eq!(paths, HashSet::from([format!("/from-{n}")]), "{name}");
            assert_eq!((rig.connections(at.v4).len(), rig.connections(raw.v4).len()), (1, 1), "{name}");
        }
        let ids: HashSet<_> = sandboxes.iter().map(|sandbox| sandbox.id().clone()).collect();
        assert_eq!(ids.len(), count);
        let ends = stream::iter(sandboxes).map(async |sandbox| sandbox.destroy().await.expect("destroyed"));
        ends.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    });
}

#[test]
fn one_that_was_prepared_knows_nothing_of_the_one_before() {
    scene("crowd::one_that_was_prepared_knows_nothing_of_the_one_before", async |scene| {
        let provider = scene.keeping();
        let (a, at) = scene.rig.host("earlier");
        let raw = scene.rig.address();
        let rules = [a.clone(), format!("{}:8000", raw.v4)];
        let program = "show([get(sys.argv[1]), get(sys.argv[2], 8000), get('198.18.1.0', 80, name=sys.argv[1], limit=1)])";
        for round in 0..6 {
            let policy = if round % 2 == 0 {
                EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules")
            } else {
                EgressPolicy::DenyAll
            };
            let sandbox = provider.create(CreateOptions::new().with_egress(policy)).await.expect("a sandbox");
            let (before, tried) = (
                scene.rig.connections(at.v4).len(),
                sandbox.python(program, &[&a, &raw.v4.to_string()]).await,
            );
            if round % 2 == 0 {
                assert_eq!(tried, serde_json::json!(["200", "200", "200"]), "round {round}");
            } else {
                assert_eq!(
                    (&tried[0], &tried[1]),
                    (&"no such name".into(), &"ENETUNREACH".into()),
                    "round {round}"
                );
                assert_ne!(tried[2], "200", "round {round}");
                assert_eq!(scene.rig.connections(at.v4).len(), before, "round {round}");
            }
            sandbox.destroy().await.expect("destroyed");
        }
    });
}
