use sandbar_rig::{Rig, inside};

use crate::inside::{Inside, has};

/// What wget exits with where there is no network for it, resolver included.
const NETWORK: i32 = 4;

#[test]
fn wget() {
    inside("wget::wget", || {
        if !has("/usr/bin/wget") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("wget"), rig.host("denied"));
        let sandbox = Inside::allowed(rig, &[&name]);
        for scheme in ["http", "https"] {
            let page = sandbox.json(&["wget", "-q", "-O", "-", &format!("{scheme}://{name}/some")]);
            assert_eq!(page["path"], "/some");
            let url = format!("{scheme}://{denied}/");
            let line = ["wget", "--tries=1", "--timeout=1", "-O", "-", &url];
            sandbox.fails(&line, NETWORK, "unable to resolve host address");
        }
        sandbox.is_denied(&denied);
    });
}
