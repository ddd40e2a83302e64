//! Another policy for a sandbox that runs.

use std::time::{Duration, Instant};

use futures::TryStreamExt;
use sandbar_core::{
    DecisionKind, DecisionOptions, DecisionReason, EgressPolicy, ErrorKind, GatewayState, Network, Sandbox,
    SandboxExt, Verdict,
};
use serde_json::json;

use crate::support::{Client, Scene, Tries, end_shim, eventually, rules_of, scene, shim_pid};

/// How long a flow that is not allowed any more may go on.
const CUT: Duration = Duration::from_secs(1);

fn network(sandbox: &dyn Sandbox) -> &dyn Network {
    sandbox.require_network().expect("a network")
}

#[test]
fn flows_that_it_forbids_are_cut_and_others_go_on() {
    scene("change::flows_that_it_forbids_are_cut_and_others_go_on", async |scene| {
        let rig = &scene.rig;
        let ((a, a_at), (b, _), cidr) = (rig.host("a"), rig.host("b"), rig.address());
        let cidr_text = cidr.v4.to_string();
        let before = [
            a.clone(),
            format!("{a}:8000"),
            format!("{a}:9999/udp"),
            format!("{b}:8000"),
            format!("{cidr_text}:8000"),
        ];
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let sandbox = scene.allowing(&before).await;
        let mut doomed = Vec::new();
        for (host, port) in [(&a, 80), (&a, 443), (&a, 8000), (&cidr_text, 8000)] {
            doomed.push(((host, port), sandbox.download(host, port).await));
        }
        let mut staying = sandbox.download(&b, 8000).await;
        // One flow, however often it is used.
        let talk = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5); s.connect((sys.argv[1], 9999))
print(address(sys.argv[1]))
while True:
    s.send(b'x')
    try: s.recv(10); print('back', flush=True)
    except OSError: print('silence', flush=True)
    time.sleep(0.05)";
        let mut talking = sandbox.begin(talk, &[&a]).await;
        let known = talking.line(CUT * 5).await.expect("an address");
        assert_eq!(talking.line(CUT * 5).await.as_deref(), Some("back"));

        let begun = Instant::now();
        scene.allow(&*sandbox, &[&format!("{b}:8000")]).await;
        let seen = rig.mark();
        assert!(begun.elapsed() < CUT * 2, "{:?}", begun.elapsed());
        for ((host, port), client) in &mut doomed {
            let end = client.line(CUT).await;
            assert!(end.is_some(), "the download from {host}:{port} goes on");
            assert!(
                end.as_ref().is_some_and(|end| *port == 443 || end.starts_with("ECONNRESET") || *port == 80),
                "{port}: {end:?}"
            );
        }
        let mut last = String::new();
        while last != "silence" {
            last = talking.line(CUT * 2).await.expect("a line");
            assert!(begun.elapsed() < CUT * 10, "datagrams go on");
        }
        assert_eq!(staying.line(CUT).await, None, "what is still allowed was cut");
        let program = "a, known, cidr, b = sys.argv[1:]
show([address(a), get(known, 80, name=a), get(known, 8000), get(cidr, 8000), echo(known, 9999, 0.5), get(b, 8000)])";
        let tried = sandbox.python(program, &[&a, &known, &cidr_text, &b]).await;
        let tried: Vec<&str> =
            tried.as_array().expect("a list").iter().filter_map(|one| one.as_str()).collect();
        assert_eq!((tried[0], tried[3], tried[5]), ("no such name", "ENETUNREACH", "200"));
        for (at, what) in [(1, "the address of before"), (2, "at another port"), (4, "by a datagram")] {
            assert!(!["200", "hello"].contains(&tried[at]), "{what}: {tried:?}");
        }
        let late: Vec<_> = rig.arrivals_since(seen, Some(a_at.v4.into()));
        assert!(late.is_empty(), "{late:?}");

        let decisions: Vec<_> = network(&*sandbox)
            .decisions(DecisionOptions::default())
            .await
            .expect("decisions")
            .try_collect()
            .await
            .expect("all");
        let told = |reason, kind, verdict| {
            let of =
                |d: &&sandbar_core::Decision| d.kind == kind && d.verdict == verdict && d.reason == reason;
            decisions.iter().filter(of).count()
        };
        let set = told(DecisionReason::PolicySet, DecisionKind::Policy, Verdict::Allowed);
        assert_eq!(set, 1, "{decisions:#?}");
        let changed = |kind| told(DecisionReason::PolicyChanged, kind, Verdict::Closed);
        let cut = changed(DecisionKind::Tcp) + changed(DecisionKind::Http);
        assert_eq!((cut, changed(DecisionKind::Udp)), (4, 1), "{decisions:#?}");
    });
}

#[test]
fn routes_of_addresses_come_and_go_with_the_policy() {
    scene("change::routes_of_addresses_come_and_go_with_the_policy", async |scene| {
        let (one, other) = (scene.rig.address().v4.to_string(), scene.rig.address().v4.to_string());
        let sandbox = scene.create(EgressPolicy::DenyAll).await;
        let reached = async |sandbox: &dyn Sandbox| {
            sandbox.python("show([get(sys.argv[1], 8000), get(sys.argv[2], 8000)])", &[&one, &other]).await
        };
        let no_way = "ENETUNREACH";
        assert_eq!(reached(&*sandbox).await, json!([no_way, no_way]));
        scene.allow(&*sandbox, &[&format!("{one}:8000")]).await;
        assert_eq!(reached(&*sandbox).await, json!(["200", no_way]));
        scene.allow(&*sandbox, &[&format!("{other}:8000")]).await;
        assert_eq!(reached(&*sandbox).await, json!([no_way, "200"]));
        network(&*sandbox).set_policy(EgressPolicy::AllowAll).await.expect("set");
        assert_eq!(reached(&*sandbox).await, json!(["200", "200"]));
        network(&*sandbox).set_policy(EgressPolicy::DenyAll).await.expect("set");
        assert_eq!(reached(&*sandbox).await, json!([no_way, no_way]));
    });
}

async fn is_as_before(scene: &Scene, sandbox: &dyn Sandbox, policy: &EgressPolicy, host: &str) {
    assert_eq!(network(sandbox).policy().await.expect("a policy"), *policy);
    assert_eq!(scene.provider_sees(sandbox).await.as_ref(), Some(policy));
    assert_eq!(sandbox.get(host, 80).await, "200");
}

#[test]
fn one_that_is_never_taken_leaves_the_one_before() {
    scene("change::one_that_is_never_taken_leaves_the_one_before", async |scene| {
        let (a, _) = scene.rig.host("a");
        let policy = EgressPolicy::allow([a.as_str()]).expect("rules");
        let sandbox = scene.create(policy.clone()).await;
        for (rules, kind, word) in [
            (&["127.0.0.0/8"][..], ErrorKind::InvalidInput, "127.0.0.0/8"),
            (&["x.test", "[2001:db8::/32]:443"], ErrorKind::Unsupported, "2001:db8::/32"),
            (&["x.test", "y.test:53/udp"], ErrorKind::Unsupported, "y.test:53/udp"),
            (&["x.test", "y.test:100-200/udp"], ErrorKind::Unsupported, "y.test:100-200/udp"),
        ] {
            let rules = EgressPolicy::allow(rules.iter().copied()).expect("rules");
            let error = network(&*sandbox).set_policy(rules).await.expect_err(word);
            assert_eq!(error.kind(), kind, "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.hint().is_some(), "{error:?}");
            is_as_before(scene, &*sandbox, &policy, &a).await;
        }
        let told: Vec<_> = network(&*sandbox)
            .decisions(DecisionOptions::default())
            .await
            .expect("decisions")
            .try_collect()
            .await
            .expect("all");
        assert!(
            told.iter().all(|decision| decision.kind != DecisionKind::Policy),
            "nothing changed: {told:#?}"
        );
    });
}

/// A program inside that has a port for datagrams before the gateway.
async fn taking(sandbox: &dyn Sandbox) -> Client {
    let program = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('0.0.0.0', 9000)); print('bound', flush=True); time.sleep(600)";
    let mut taking = sandbox.begin(program, &[]).await;
    assert_eq!(taking.line(CUT * 10).await.as_deref(), Some("bound"));
    taking
}

#[test]
fn nothing_inside_keeps_a_wider_one_in_force() {
    scene("change::nothing_inside_keeps_a_wider_one_in_force", async |scene| {
        let ((a, _), (b, _)) = (scene.rig.host("a"), scene.rig.host("b"));
        let cidr = scene.rig.address().v4.to_string();
        let sandbox = scene.create(EgressPolicy::AllowAll).await;
        let _taking = taking(&*sandbox).await;
        let mut download = sandbox.download(&a, 8000).await;
        let udp = "y.test:9000/udp";
        let network = network(&*sandbox);
        let error = network.set_policy(rules_of(&[&b, &cidr, udp])).await.expect_err("the port is taken");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.to_string().contains(&format!("`{udp}`")) && error.hint().is_some(), "{error:?}");
        assert!(download.line(CUT).await.is_some(), "the download goes on");
        let in_force = rules_of(&[&b, &cidr]);
        assert_eq!(network.policy().await.expect("a policy"), in_force);
        assert_eq!(scene.provider_sees(&*sandbox).await.as_ref(), Some(&in_force));
        let reached = "show([get(host, 80) for host in sys.argv[1:]])";
        let expected = json!(["no such name", "200", "200"]);
        assert_eq!(sandbox.python(reached, &[&a, &b, &cidr]).await, expected);

        // A shim that takes over and can't have it serves all else, and says so.
        end_shim(scene, sandbox.id()).await;
        let kept = json!({ "policy": rules_of(&[&b, &cidr, udp]) });
        std::fs::write(scene.folder(sandbox.id()).join("egress.json"), kept.to_string()).expect("written");
        assert_eq!(sandbox.python(reached, &[&a, &b, &cidr]).await, expected);
        let reason = async || scene.described(&*sandbox).await.reason.unwrap_or_default();
        assert!(reason().await.contains(udp), "{}", reason().await);
        network.set_policy(in_force).await.expect("set");
        assert!(!reason().await.contains(udp), "{}", reason().await);
    });
}

/// Lets the shim wait in the kernel for the next connection, as a copy of its listener does it inside.
fn freeze(shim: i32) {
    use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let pid = pidfd_open(Pid::from_raw(shim).expect("a process"), PidfdFlags::empty()).expect("the shim");
    let mut frozen = 0;
    for fd in std::fs::read_dir(format!("/proc/{shim}/fd")).expect("descriptors").flatten() {
        let number = fd.file_name().to_string_lossy().parse().expect("a number");
        let Ok(copy) = pidfd_getfd(&pid, number, PidfdGetfdFlags::empty()) else { continue };
        let at =
            rustix::net::getsockname(&copy).ok().and_then(|at| std::net::SocketAddrV4::try_from(at).ok());
        let listens = rustix::net::sockopt::socket_acceptconn(&copy).unwrap_or(false);
        if listens && at.is_some_and(|at| at.port() == 15001) {
            rustix::io::ioctl_fionbio(&copy, false).expect("the flag");
            frozen += 1;
        }
    }
    assert!(frozen > 0, "no listener");
}

#[test]
fn a_gateway_that_hangs_is_told_and_cuts_all_the_same() {
    scene("change::a_gateway_that_hangs_is_told_and_cuts_all_the_same", async |scene| {
        let (a, _) = scene.rig.host("a");
        let sandbox = scene.allowing(&[&format!("{a}:8000")]).await;
        let network = network(&*sandbox);
        let shim = shim_pid(scene, sandbox.id()).expect("a shim");
        let state = async || scene.described(&*sandbox).await.egress.gateway;
        let mut first = sandbox.download(&a, 8000).await;
        freeze(shim);
        let _next = sandbox.begin("print(get(sys.argv[1], 8000), flush=True)", &[&a]).await;
        eventually("it is down", async || state().await == Some(GatewayState::Down)).await;
        network.set_policy(EgressPolicy::DenyAll).await.expect("set");
        assert_eq!(network.counters().await.expect("counters").open, 0);
        assert!(first.line(CUT).await.is_some(), "the download goes on");
        eventually("it goes on", async || state().await == Some(GatewayState::Serving)).await;
    });
}
