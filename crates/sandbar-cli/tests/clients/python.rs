use sandbar_rig::{Rig, inside};

use crate::inside::{Inside, has};

const PYTHON: &str = "/usr/bin/python3";

/// Prints what it got, or what kept it from that: its own limit of a second is another error.
const URLLIB: &str = r"
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=1).read().decode())
except urllib.error.HTTPError as e:
    print(e.code, e.headers['x-sandbar-egress'], e.read().decode())
except urllib.error.URLError as e:
    print(type(e.reason).__name__, e.reason)
";

const REQUESTS: &str = r"
import sys, requests
session = requests.Session()
try:
    for path in ('some', 'other'):
        got = session.get(sys.argv[1] + path, timeout=1)
    print(got.text)
    got = session.post(sys.argv[1] + 'upload', data=iter([b'x' * 1000] * 1000))
    assert got.json() == {'received': 1000000}, got.text
except requests.exceptions.RequestException as e:
    print(type(e).__name__, e)
";

#[test]
fn urllib() {
    inside("python::urllib", || {
        if !has(PYTHON) {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("urllib"), rig.host("denied"));
        let only_tls = rig.host("tls").0;
        let sandbox = Inside::allowed(rig, &[&name, &format!("{only_tls}:443")]);
        for scheme in ["http", "https"] {
            let page = sandbox.json(&[PYTHON, "-c", URLLIB, &format!("{scheme}://{name}/some")]);
            assert_eq!(page["path"], "/some");
            let words = sandbox.works(&[PYTHON, "-c", URLLIB, &format!("{scheme}://{denied}/")]);
            assert!(words.starts_with("gaierror"), "{words}");
        }
        let words = sandbox.works(&[PYTHON, "-c", URLLIB, &format!("http://{only_tls}/")]);
        assert!(words.starts_with("403 denied") && words.contains("A retry will not help."), "{words}");
        sandbox.is_denied(&denied);
    });
}

#[test]
fn requests() {
    inside("python::requests", || {
        if !has(PYTHON) || !has("/usr/lib/python3/dist-packages/requests") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("requests"), rig.host("denied"));
        let sandbox = Inside::allowed(rig, &[&name]);
        for scheme in ["http", "https"] {
            let page = sandbox.json(&[PYTHON, "-c", REQUESTS, &format!("{scheme}://{name}/")]);
            assert_eq!((&page["path"], &page["version"]), (&"/other".into(), &"HTTP/1.1".into()));
            let words = sandbox.works(&[PYTHON, "-c", REQUESTS, &format!("{scheme}://{denied}/")]);
            assert!(words.starts_with("ConnectionError") && words.contains("not known"), "{words}");
        }
        sandbox.is_denied(&denied);
    });
}
