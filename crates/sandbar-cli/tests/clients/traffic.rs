use sandbar_rig::{Reach, Rig, inside};

use crate::inside::Inside;

/// More than any buffer on the way.
const LARGE: u64 = 100 << 20;
/// As many at once as a browser or a package manager makes, and more.
const MANY: usize = 64;

#[test]
fn large_bodies_both_ways() {
    inside("traffic::large_bodies_both_ways", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("large");
        let sandbox = Inside::allowed(rig, &[&name]);
        sandbox.works(&["truncate", "-s", &LARGE.to_string(), "/tmp/large"]);
        let received = format!("{{\"received\":{LARGE}}}");
        for scheme in ["http", "https"] {
            let down = format!("{scheme}://{name}/bytes/{LARGE}");
            let line = ["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code} %{size_download}", &down];
            assert_eq!(sandbox.works(&line), format!("200 {LARGE}"));
            let up = format!("{scheme}://{name}/upload");
            // With a length, which curl asks leave for (`Expect: 100-continue`), and without one.
            assert_eq!(sandbox.works(&["curl", "-sS", "--http1.1", "-T", "/tmp/large", &up]), received);
            let piped = format!("cat /tmp/large | curl -sS --http1.1 -T - {up}");
            assert_eq!(sandbox.works(&["sh", "-c", &piped]), received);
        }
        // What was counted is what went through.
        let shown = sandbox.home.json(&["network", &sandbox.id, "--json"]);
        let (out, into) = (shown["counters"]["bytes_out"].as_u64(), shown["counters"]["bytes_in"].as_u64());
        assert!(out > Some(4 * LARGE) && into > Some(2 * LARGE), "{shown}");
    });
}

#[test]
fn pieces_heads_and_connections_that_are_kept() {
    inside("traffic::pieces_heads_and_connections_that_are_kept", || {
        let rig = Rig::connect();
        let (name, address) = rig.host("pieces");
        let sandbox = Inside::allowed(rig, &[&name]);
        for scheme in ["http", "https"] {
            let url = |path: &str| format!("{scheme}://{name}{path}");
            let text = sandbox.works(&["curl", "-sS", "--http1.1", "-i", &url("/drip?count=3&ms=1")]);
            let chunked = text.to_ascii_lowercase().contains("transfer-encoding: chunked");
            assert!(chunked && text.ends_with("drip 0\ndrip 1\ndrip 2\n"), "{text}");
            let head = sandbox.works(&["curl", "-sS", "--http1.1", "-I", &url("/bytes/12345")]);
            assert!(head.to_ascii_lowercase().contains("content-length: 12345"), "{head}");
            let before = sandbox.rig.connections(address.v4).len();
            let each = ["-o", "/dev/null", "-w", "%{num_connects} "];
            let (one, two) = (url("/one"), url("/two"));
            let line = [&["curl", "-sS", "--http1.1"], &each[..], &each[..2], &[&one, &two]].concat();
            assert_eq!(sandbox.works(&line), "1 0 ");
            assert_eq!(sandbox.rig.connections(address.v4).len(), before + 1);
        }
    });
}

#[test]
fn many_at_once() {
    inside("traffic::many_at_once", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("many");
        let sandbox = Inside::allowed(rig, &[&name]);
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{name}/drip?count=5&ms=20&of=[1-{MANY}]");
            let most = MANY.to_string();
            let line = ["curl", "-sS", "--http1.1", "-Z", "--parallel-immediate", "--parallel-max", &most];
            let line = [&line[..], &["-o", "/dev/null", "-w", "%{http_code}\n", &url]].concat();
            assert_eq!(sandbox.works(&line), "200\n".repeat(MANY));
        }
    });
}

#[test]
fn a_host_by_its_addresses_that_answer() {
    inside("traffic::a_host_by_its_addresses_that_answer", || {
        let rig = Rig::connect();
        let (six, dead, gone) = (rig.unique("six"), rig.unique("dead"), rig.unique("gone"));
        let (good, silent, refusing) = (rig.address(), rig.address(), rig.address());
        rig.set_reach(silent.v4, Reach::Silent);
        rig.set_reach(refusing.v4, Reach::Unreachable);
        rig.zone(&six).aaaa(good.v6).publish();
        rig.zone(&dead).a(silent.v4).a(refusing.v4).a(good.v4).publish();
        rig.zone(&gone).a(refusing.v4).publish();
        let sandbox = Inside::allowed(rig, &[&six, &dead, &gone]);
        for scheme in ["http", "https"] {
            for (name, to) in [(&six, format!("[{}]", good.v6)), (&dead, good.v4.to_string())] {
                let page = sandbox.json(&["curl", "-sS", "--max-time", "30", &format!("{scheme}://{name}/")]);
                assert!(
                    page["to"].as_str().is_some_and(|seen| seen.starts_with(&format!("{to}:"))),
                    "{page}"
                );
            }
        }
        let page = sandbox.works(&["curl", "-sS", "-w", "%{http_code}", &format!("http://{gone}/")]);
        assert!(page.contains("the host did not take the connection") && page.ends_with("502"), "{page}");
        assert!(!page.contains("retry will not help"), "{page}");
        let output = sandbox.run(&["curl", "-sS", "--max-time", "30", &format!("https://{gone}/")]);
        assert_eq!(output.status.code(), Some(35), "{}", sandbox.log());
        assert!(sandbox.log().contains("the host did not take the connection"));
    });
}
