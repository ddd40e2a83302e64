//! What a sandbox may reach when it is made, and what its record says of it.

use sandbar_core::{EgressPolicy, GatewayState, SandboxExt};
use serde_json::json;

use crate::support::{Scene, Tries, scene};

async fn shown(scene: &Scene, policy: EgressPolicy, tries: &str, arguments: &[&str]) -> serde_json::Value {
    let sandbox = scene.create(policy.clone()).await;
    let record = sandbox.record().await.expect("a record");
    assert_eq!(record.egress.gateway, Some(GatewayState::Serving));
    assert_eq!(record.egress.policy.as_ref(), Some(&policy));
    assert_eq!(record.reason, None);
    let network = sandbox.require_network().expect("a network");
    assert_eq!(network.policy().await.expect("a policy"), policy);
    let shown = sandbox.python(tries, arguments).await;
    sandbox.destroy().await.expect("destroyed");
    shown
}

/// By name at the default ports, by a name at another port, by address, and at an address of the host's network.
const TRIES: &str = "a, b, raw, near = sys.argv[1:]
show([get(a), get(a, 443), get(a, 8000), get(b), get(raw), get(raw, 8000), get(near)])";

#[test]
fn a_sandbox_reaches_what_the_policy_of_its_creation_allows() {
    scene("kinds::a_sandbox_reaches_what_the_policy_of_its_creation_allows", async |scene| {
        let rig = &scene.rig;
        let ((a, _), (b, b_at)) = (rig.host("a"), rig.host("b"));
        let raw = rig.address();
        let (raw_text, near) = (raw.v4.to_string(), sandbar_rig::NEIGHBOUR.to_string());
        let arguments = [a.as_str(), &b, &raw_text, &near];

        let none = shown(scene, EgressPolicy::DenyAll, TRIES, &arguments).await;
        let (no_name, no_way) = ("no such name", "ENETUNREACH");
        assert_eq!(none, json!([no_name, no_name, no_name, no_name, no_way, no_way, no_way]));
        for name in [&a, &b] {
            assert!(rig.queries(name).is_empty(), "{name} was asked for");
        }
        assert!(rig.arrivals(raw.v4).is_empty());

        let rules = EgressPolicy::allow([a.as_str(), &format!("{raw_text}:8000")]).expect("rules");
        let some = shown(scene, rules, TRIES, &arguments).await;
        let some: Vec<&str> =
            some.as_array().expect("a list").iter().filter_map(|one| one.as_str()).collect();
        assert_eq!((some[0], some[1], some[3], some[5], some[6]), ("200", "200", no_name, "200", no_way));
        assert!(some[2] != "200" && some[4] != "200", "ports that no rule names: {some:?}");
        assert!(rig.queries(&b).is_empty() && rig.connections(b_at.v4).is_empty());

        let all = shown(scene, EgressPolicy::AllowAll, TRIES, &arguments).await;
        let all: Vec<&str> = all.as_array().expect("a list").iter().filter_map(|one| one.as_str()).collect();
        assert_eq!(all[..6], ["200"; 6], "{all:?}");
        assert_ne!(all[6], "200");
        assert!(rig.connections(sandbar_rig::NEIGHBOUR).is_empty());
    });
}
