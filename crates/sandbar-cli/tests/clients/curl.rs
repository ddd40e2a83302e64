use sandbar_rig::{Rig, inside};

use crate::harness::{both, code};
use crate::inside::Inside;

/// Gives up after a second, with the code 28; any other code came before.
const CURL: &[&str] = &["curl", "-sS", "--connect-timeout", "1"];

fn curl<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [CURL, arguments].concat()
}

#[test]
fn both_versions_of_http() {
    inside("curl::both_versions_of_http", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("curl");
        let sandbox = Inside::allowed(rig, &[&name]);
        let (tls, plain) = (format!("https://{name}/some?a=b"), format!("http://{name}/some?a=b"));
        for (flag, url, version) in [
            ("--http1.1", &tls, "HTTP/1.1"),
            ("--http2", &tls, "HTTP/2.0"),
            ("--http1.1", &plain, "HTTP/1.1"),
        ] {
            let page = sandbox.json(&curl(&[flag, "-H", "x-own: mine", url]));
            assert_eq!((&page["version"], &page["query"]), (&version.into(), &"a=b".into()), "{flag} {url}");
            assert_eq!(page["host"], name.as_str());
        }
    });
}

#[test]
fn both_versions_of_tls() {
    inside("curl::both_versions_of_tls", || {
        let rig = Rig::connect();
        let (name, _) = rig.host("versions");
        let sandbox = Inside::allowed(rig, &[&name]);
        let url = format!("https://{name}/");
        for (flags, version) in
            [(["--tlsv1.2", "--tls-max", "1.2"], "TLSv1.2"), (["--tlsv1.3", "--tls-max", "1.3"], "TLSv1.3")]
        {
            let output = sandbox.run(&curl(&[&flags[..], &["-v", "-o", "/dev/null", &url]].concat()));
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && words.contains(&format!("SSL connection using {version}")),
                "{words}"
            );
        }
    });
}

#[test]
fn a_denied_host_does_not_exist() {
    inside("curl::a_denied_host_does_not_exist", || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let sandbox = Inside::allowed(rig, &[&allowed]);
        for scheme in ["http", "https"] {
            sandbox.fails(&curl(&[&format!("{scheme}://{denied}/")]), 6, "Could not resolve host");
        }
        sandbox.is_denied(&denied);
        // Nor is there a way to its address.
        let dodge = format!("{denied}:443:{}", address.v4);
        sandbox.fails(&curl(&["--resolve", &dodge, &format!("https://{denied}/")]), 7, "Couldn't connect");
        assert!(sandbox.rig.arrivals(address.v4).is_empty() && sandbox.rig.arrivals(address.v6).is_empty());
    });
}

#[test]
fn a_denied_port_is_refused_at_once_and_told_in_http() {
    inside("curl::a_denied_port_is_refused_at_once_and_told_in_http", || {
        let rig = Rig::connect();
        let (name, address) = rig.host("ports");
        let sandbox = Inside::allowed(rig, &[&format!("{name}:9000")]);
        let page = sandbox.json(&curl(&[&format!("http://{name}:9000/")]));
        assert_eq!(page["host"], format!("{name}:9000"));
        let plain = sandbox.works(&curl(&[
            "-w",
            "%{http_code} %header{x-sandbar-egress}",
            &format!("http://{name}/"),
        ]));
        let told = [
            "the sandbox's egress policy allows this host, but not at this port",
            "A retry will not help.",
            "403 denied",
        ];
        assert!(told.iter().all(|part| plain.contains(part)), "{plain}");
        sandbox.fails(&curl(&[&format!("https://{name}/")]), 35, "alert");
        // While it connects, or right afterwards.
        let output = sandbox.run(&curl(&[&format!("http://{name}:8080/")]));
        assert!([7, 56].contains(&code(&output)), "{}", both(&output));
        let log = sandbox.log();
        for port in ["80", "443", "8080"] {
            let line = log.lines().find(|line| line.contains(&format!("{name}:{port} ")));
            assert!(
                line.is_some_and(|line| line.contains("denied") && line.contains("not at this port")),
                "{port}: {log}"
            );
        }
        let arrived = sandbox.rig.arrivals(address.v4);
        assert!(arrived.iter().all(|seen| seen.port == Some(9000)), "{arrived:?}");
    });
}

#[test]
fn redirects_lead_where_the_policy_says() {
    inside("curl::redirects_lead_where_the_policy_says", || {
        let rig = Rig::connect();
        let ((first, _), (second, _), (denied, _)) =
            (rig.host("first"), rig.host("second"), rig.host("denied"));
        let sandbox = Inside::allowed(rig, &[&first, &second]);
        for scheme in ["http", "https"] {
            let to = |host: &str| format!("{scheme}://{first}/redirect?to={scheme}://{host}/there");
            let page = sandbox.json(&curl(&["-L", &to(&second)]));
            assert_eq!((&page["host"], &page["path"]), (&second.as_str().into(), &"/there".into()));
            sandbox.fails(&curl(&["-L", &to(&denied)]), 6, "Could not resolve host");
        }
        sandbox.is_denied(&denied);
    });
}
