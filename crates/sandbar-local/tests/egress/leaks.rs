//! The whole suite, as the outside sees it.

use std::net::IpAddr;

use sandbar_core::{Command, EgressPolicy};
use sandbar_local::{LeakSuite, PROBE_NAME};
use sandbar_rig::{RESOLVER, Rig};

use crate::bed::{Bed, allow, in_rig, users};
use crate::full;

/// Where the executable is inside.
const AGENT: &str = "/run/sandbar/agent";

/// Runs the suite inside alone: what arrives then came from there, and is for the allowed name or is a leak.
async fn run(policy: EgressPolicy, allowed: Option<(&str, IpAddr)>) {
    // What others would have arrive meanwhile could not be told from a leak.
    let rig = Rig::connect_alone();
    full::outside(&rig);
    let bed = Bed::new();
    let sandbox = bed.sandbox(policy.clone()).await;
    let suite = LeakSuite::new(&policy);
    for user in users() {
        let mark = rig.mark();
        let output = sandbox.run_as(user, &Command::new(AGENT).arg(PROBE_NAME), suite.input()).await;
        assert!(output.status.is_success(), "{}", output.stderr_lossy());
        let complaints = suite.complaints(&output.stdout);
        assert!(complaints.is_empty(), "as {user:?}: {complaints:#?}");
        let is_expected = |to: IpAddr, port: Option<u16>| match allowed {
            Some((_, address)) if to == address => matches!(port, Some(80 | 443)),
            Some(_) => to == IpAddr::V4(RESOLVER) && port == Some(53),
            None => false,
        };
        let leaks: Vec<_> = rig.arrivals_since(mark, None);
        let leaks: Vec<_> = leaks.iter().filter(|arrival| !is_expected(arrival.to, arrival.port)).collect();
        assert!(leaks.is_empty(), "arrived outside, as {user:?}: {leaks:#?}");
        if let Some((name, address)) = allowed {
            only_honest_words(&rig, mark, name, address);
        }
        let asked: Vec<_> = rig.queries_since(mark, None);
        let asked: Vec<_> =
            asked.iter().filter(|query| Some(&*query.name) != allowed.map(|(name, _)| name)).collect();
        assert!(asked.is_empty(), "asked outside, as {user:?}: {asked:#?}");
    }
    // The sandbox is no dead one: what is allowed still works.
    if let Some((name, _)) = allowed {
        let page = sandbox.fetched(&format!("https://{name}/after")).await;
        assert!(page.contains("/after"), "{page}");
    }
    sandbox.destroy().await;
}

/// Asserts that the allowed host itself got nothing but what is for its name.
fn only_honest_words(rig: &Rig, mark: u64, name: &str, address: IpAddr) {
    let came = rig.connections(address);
    let came: Vec<_> = came.iter().filter(|seen| seen.seq > mark && !seen.head.is_empty()).collect();
    assert!(came.iter().any(|seen| seen.server_name.as_deref() == Some(name)), "the honest hello: {came:#?}");
    for seen in came {
        let is_for_it = match seen.to.port() {
            443 => seen.server_name.as_deref() == Some(name),
            _ => String::from_utf8_lossy(&seen.head).to_lowercase().contains(&format!("host: {name}")),
        };
        let says_denied = String::from_utf8_lossy(&seen.head).to_lowercase().contains("example.com");
        assert!(is_for_it && !says_denied, "for another name: {seen:#?}: {}", seen.head.escape_ascii());
    }
    let requests = rig.requests("example.com");
    assert!(requests.iter().all(|request| request.seq <= mark), "{requests:#?}");
}

#[test]
fn nothing_of_the_suite_arrives_outside() {
    in_rig("leaks::nothing_of_the_suite_arrives_outside", async || {
        let (name, address) = {
            let rig = Rig::connect();
            let (name, address) = (rig.unique("allowed"), rig.address());
            rig.zone(&name).a(address.v4).publish();
            (name, address)
        };
        run(allow([&*format!("{name}:80,443")]), Some((&name, address.v4.into()))).await;
    });
}

#[test]
fn nothing_at_all_arrives_under_deny_all() {
    in_rig("leaks::nothing_at_all_arrives_under_deny_all", async || {
        run(EgressPolicy::DenyAll, None).await;
    });
}

/// Rows that get through where there is no wall, whoever runs them. The others are about the host itself, the gateway, or what a kernel gives to root
/// only; and hellos that the rig's own server refuses too: of those the outside says that they never came.
const WITHOUT_A_WALL: &[&str] = &[
    "allowed-name",
    "denied-name",
    "raw-ipv4",
    "raw-ipv4-other",
    "ipv6",
    "udp-53",
    "metadata",
    "raw-ports",
    "v4-mapped",
    "nat64",
    "other-metadata",
    "metadata-names",
    "private",
    "tcp-53",
    "dot",
    "doh-address",
    "doh-name",
    "denied-name-dns",
    "dns-lookalikes",
    "sni-denied",
    "sni-dot-case",
    "sni-homograph",
    "sni-lookalike",
    "sni-empty",
    "sni-address",
    "sni-split",
    "plain-on-443",
    "tls-on-80",
    "host-mismatch",
    "absolute-form",
    "host-twice",
    "keep-alive",
    "smuggling",
    "connect",
    "upgrade",
    "udp",
];

/// The same attempts where nothing stands in their way: one that can't get through there shows nothing by being refused in a sandbox.
#[test]
fn without_a_wall_the_suite_gets_through() {
    in_rig("leaks::without_a_wall_the_suite_gets_through", async || {
        let rig = Rig::connect();
        let allowed = full::outside(&rig);
        let suite = LeakSuite::new(&allow([&*format!("{allowed}:80,443")]));
        let input = tempfile::tempfile().expect("a temporary file");
        std::io::Write::write_all(&mut &input, &suite.input()).expect("room for it");
        std::io::Seek::rewind(&mut &input).expect("a file");
        // By the name that the executable has in a sandbox.
        let mut probe =
            std::process::Command::new(std::env::var_os("SANDBAR_HELPER").expect("the executable"));
        std::os::unix::process::CommandExt::arg0(&mut probe, "agent");
        let output = probe.arg(PROBE_NAME).stdin(input).output().expect("the probe runs");
        let reached = suite.reached(&output.stdout);
        let missed: Vec<_> =
            WITHOUT_A_WALL.iter().filter(|row| !reached.iter().any(|name| name == *row)).collect();
        assert!(missed.is_empty(), "{missed:?}, reached: {reached:?}");
    });
}
