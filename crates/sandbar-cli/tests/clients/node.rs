use sandbar_rig::{Rig, inside};

use crate::inside::{Inside, has};

const FETCH: &str = r"
fetch(process.argv[1], { signal: AbortSignal.timeout(1000) })
  .then(async answer => console.log(answer.status === 200 ? await answer.text() : answer.status + ' ' + await answer.text()))
  .catch(error => console.log(error.name, error.cause && error.cause.code));
";

#[test]
fn fetch() {
    inside("node::fetch", || {
        if !has("/usr/bin/node") {
            return;
        }
        let rig = Rig::connect();
        let ((name, _), (denied, _)) = (rig.host("node"), rig.host("denied"));
        let only_tls = rig.host("tls").0;
        let sandbox = Inside::allowed(rig, &[&name, &format!("{only_tls}:443")]);
        for scheme in ["http", "https"] {
            let page = sandbox.json(&["node", "-e", FETCH, &format!("{scheme}://{name}/some")]);
            assert_eq!(page["path"], "/some");
            let words = sandbox.works(&["node", "-e", FETCH, &format!("{scheme}://{denied}/")]);
            assert_eq!(words, "TypeError ENOTFOUND\n");
        }
        let words = sandbox.works(&["node", "-e", FETCH, &format!("http://{only_tls}/")]);
        assert!(words.starts_with("403 denied") && words.contains("A retry will not help."), "{words}");
        sandbox.is_denied(&denied);
    });
}
