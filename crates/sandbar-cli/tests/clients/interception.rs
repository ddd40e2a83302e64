use std::os::unix::fs::MetadataExt;
use std::process::Output;

use sandbar_rig::{Rig, inside};
use serde_json::Value;

use crate::harness::{Home, both, code, signal_to};
use crate::inside::{Inside, TRUSTED, has};

/// The secret, in a variable that only the command that gives it away has.
const VARIABLE: &str = "SANDBAR_TEST_SECRET";
const SECRET: &str = "Bearer 5ecret-0f-the-test";
const HEADER: &str = "authorization";

/// A sandbox that may reach `name`, with the secret, and `other`, without.
fn with_secret(rig: Rig, name: &str, other: &str) -> Inside {
    let home = Home::new();
    let inject = format!("{name}={HEADER}:env:{VARIABLE}");
    let output = given(&home, &["create", "--allow", name, "--allow", other, "--inject", &inject]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let id = String::from_utf8(output.stdout).expect("text").trim_end().to_owned();
    Inside { rig, home, id }
}

/// Runs a command that has the secret in its environment.
fn given(home: &Home, arguments: &[&str]) -> Output {
    home.sandbar(arguments).env(VARIABLE, SECRET).output().expect("the executable starts")
}

/// The values of the header in what the rig's page says of a request.
fn injected(page: &Value) -> Vec<&str> {
    let headers = page["headers"].as_array().expect("headers");
    headers.iter().filter(|pair| pair[0] == HEADER).filter_map(|pair| pair[1].as_str()).collect()
}

/// As `Inside::works`, without telling programs whom to trust: the sandbox is made to.
fn plainly(sandbox: &Inside, argv: &[&str]) -> String {
    sandbox.home.text(&[&["exec", &sandbox.id, "--"], argv].concat())
}

#[test]
fn programs_as_they_are_send_what_they_do_not_know() {
    inside("interception::programs_as_they_are_send_what_they_do_not_know", || {
        let rig = Rig::connect();
        let ((name, _), (other, _)) = (rig.host("api"), rig.host("other"));
        let sandbox = with_secret(rig, &name, &other);
        let url = format!("https://{name}/some");
        let urllib = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())";
        let requests = "import sys, requests; print(requests.get(sys.argv[1]).text)";
        let fetch = "fetch(process.argv[1]).then(answer => answer.text()).then(console.log)";
        let python = "/usr/bin/python3";
        let own = format!("{HEADER}: mine");
        let programs: &[(&str, &[&str])] = &[
            ("/usr/bin/curl", &["curl", "-sS", &url]),
            // Its own header of that name does not go out, however often it is there.
            ("/usr/bin/curl", &["curl", "-sS", "-H", &own, "-H", "Authorization: mine, too", &url]),
            ("/usr/bin/curl", &["curl", "-sS", "--http2", &url]),
            ("/usr/bin/wget", &["wget", "-q", "-O", "-", &url]),
            (python, &[python, "-c", urllib, &url]),
            ("/usr/lib/python3/dist-packages/requests", &[python, "-c", requests, &url]),
            ("/usr/bin/node", &["node", "-e", fetch, &url]),
            // Without a variable that says whom to trust.
            (python, &["env", "-i", python, "-c", urllib, &url]),
            ("/usr/bin/curl", &["env", "-i", "/usr/bin/curl", "-sS", &url]),
        ];
        for (path, argv) in programs {
            if has(path) {
                let text = plainly(&sandbox, argv);
                let page: Value = serde_json::from_str(&text).expect("JSON");
                assert_eq!(injected(&page), [SECRET], "{argv:?}: {page}");
                assert_eq!((&page["path"], &page["host"]), (&"/some".into(), &name.as_str().into()));
            }
        }
        let asked = ["git", "ls-remote", &format!("https://{name}/demo.git")];
        let output = sandbox.home.run(&[&["exec", &sandbox.id, "--"], &asked[..]].concat());
        assert!(!both(&output).contains("certificate"), "{}", both(&output));
        let requests = sandbox.rig.requests(&name);
        let asked = requests.iter().find(|request| request.path == "/demo.git/info/refs").expect("git asked");
        assert!(asked.headers.contains(&(HEADER.to_owned(), SECRET.to_owned())), "{asked:?}");
        // Nothing of it in clear, and nothing to others.
        for url in [format!("http://{name}/"), format!("https://{other}/")] {
            let page = sandbox.json(&["curl", "-sS", "-H", &own, &url]);
            assert_eq!(injected(&page), ["mine"], "{url}");
        }
        let issuer = |name: &str| {
            let url = format!("https://{name}/");
            let output = sandbox.run(&["curl", "-sSv", "-o", "/dev/null", &url]);
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            words.lines().find(|line| line.contains("issuer:")).expect("an issuer").to_owned()
        };
        let (of_name, of_other) = (issuer(&name), issuer(&other));
        assert!(of_name.contains("O=Sandbar") && of_other.contains("CN=sandbar rig"), "{of_name} {of_other}");
    });
}

/// Looks for texts in whatever can be read, given one a line on standard input.
const SEARCH: &str = r"
import json, os, sys
needles = [bytes(json.loads(line)) for line in sys.stdin]
files = [f'/proc/{pid}/{name}' for pid in os.listdir('/proc') if pid.isdigit() for name in ('environ', 'cmdline')]
for top in ('/etc', '/home', '/root', '/run', '/tmp', '/var', '/usr/local/share/ca-certificates', '/dev/shm'):
    files += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
seen = 0
for path in files:
    try:
        if not os.path.isfile(path): continue
        content = open(path, 'rb').read()
    except OSError:
        continue
    seen += 1
    for needle in needles:
        if needle in content: print('found in', path)
print('looked at more than 100' if seen > 100 else seen)
";

/// As a line of numbers.
fn needle(bytes: &[u8]) -> String {
    serde_json::to_string(bytes).expect("JSON") + "\n"
}

#[test]
fn neither_the_secret_nor_the_key_is_inside() {
    inside("interception::neither_the_secret_nor_the_key_is_inside", || {
        let rig = Rig::connect();
        let ((name, _), (other, _)) = (rig.host("api"), rig.host("other"));
        let sandbox = with_secret(rig, &name, &other);
        sandbox.works(&["curl", "-sS", "-o", "/dev/null", &format!("https://{name}/bytes/10")]);
        let folder = sandbox.home.data().join("sandboxes").join(&sandbox.id);
        let kept = std::fs::read(folder.join("egress-ca")).expect("the authority is kept");
        // A PKCS#8 key of this curve holds the secret number behind these bytes (RFC 5915: version 1, 32 bytes).
        let start =
            kept.windows(5).position(|bytes| bytes == [0x02, 0x01, 0x01, 0x04, 0x20]).expect("a key") + 5;
        let needles = needle(SECRET.as_bytes()) + &needle(&kept[start..start + 32]);
        // What is looked for is found where it is.
        sandbox.works(&["sh", "-c", "echo there 5ecret-0f- > /tmp/there"]);
        for user in ["user", "root"] {
            let search = ["exec", &sandbox.id, "-i", "-u", user, "--", "/usr/bin/python3", "-c", SEARCH];
            let output = sandbox.home.run_with(&search, needles.clone().into_bytes());
            if user == "root" && code(&output) != 0 {
                // A sandbox with one id has no root.
                assert!(both(&output).contains("root"), "{}", both(&output));
                continue;
            }
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "looked at more than 100\n",
                "{user}: {}",
                both(&output)
            );
            let output = sandbox.home.run_with(&search, needle(b"5ecret-0f-").into_bytes());
            assert!(
                String::from_utf8_lossy(&output.stdout).contains("found in /tmp/there"),
                "{}",
                both(&output)
            );
        }
        is_told_without_the_secret(&sandbox, &name);
        for file in ["egress-ca", "egress.json"] {
            let mode = std::fs::metadata(folder.join(file)).expect("a file").mode() & 0o7777;
            assert_eq!(mode, 0o600, "{file}");
        }
        for file in ["record.json", "egress.jsonl", "shim.log"] {
            let text = std::fs::read_to_string(folder.join(file)).expect("a file");
            assert!(!text.contains(SECRET), "{file}");
        }
        let inside = sandbox.works(&["cat", "/etc/ssl/certs/sandbar-egress.pem"]);
        let outside = std::fs::read_to_string(TRUSTED).expect("a list");
        assert!(
            inside.contains("BEGIN CERTIFICATE") && !outside.contains(inside.trim()),
            "the host trusts it"
        );
    });
}

/// Whoever asks is told that TLS is intercepted, and what is put in, and not its value.
fn is_told_without_the_secret(sandbox: &Inside, name: &str) {
    for command in ["describe", "network"] {
        let text = sandbox.home.text(&[command, &sandbox.id]);
        let told = format!("{name}:443, intercepted, injects {HEADER}");
        assert!(text.contains(&told) && !text.contains(SECRET), "{text}");
        let text = sandbox.home.text(&[command, &sandbox.id, "--json"]);
        assert!(text.contains("\"inject\"") && text.contains(HEADER) && !text.contains(SECRET), "{text}");
    }
}

#[test]
fn requests_that_name_another_host_are_refused_in_tls_too() {
    inside("interception::requests_that_name_another_host_are_refused_in_tls_too", || {
        let rig = Rig::connect();
        let ((name, address), (other, _)) = (rig.host("api"), rig.host("other"));
        let sandbox = with_secret(rig, &name, &other);
        let url = format!("https://{name}/");
        let refused =
            sandbox.works(&["curl", "-sS", "-w", "%{http_code}", "-H", &format!("Host: {other}"), &url]);
        assert!(refused.ends_with("403") && refused.contains("names another host"), "{refused}");
        assert!(refused.contains("A retry will not help."), "{refused}");
        let target = format!("https://{other}/");
        let refused =
            sandbox.works(&["curl", "-sS", "-w", "%{http_code}", "--request-target", &target, &url]);
        assert!(refused.ends_with("403") && refused.contains("names another host"), "{refused}");
        // HTTP/2, where another host could be named in a way of its own, is not spoken here.
        let output =
            sandbox.run(&["curl", "-sS", "--http2-prior-knowledge", "-H", &format!("Host: {other}"), &url]);
        let text = both(&output);
        assert!(code(&output) != 0 || text.contains("names another host"), "{text}");
        assert!(sandbox.rig.requests(&other).is_empty(), "it went out");
        let sent = sandbox.rig.connections(address.v4);
        assert!(sandbox.rig.requests(&name).is_empty(), "{sent:?}");
        let log = sandbox.log();
        assert!(log.contains("denied  http") && log.contains("names another host"), "{log}");
    });
}

#[test]
fn it_is_the_same_authority_after_a_take_over() {
    inside("interception::it_is_the_same_authority_after_a_take_over", || {
        let rig = Rig::connect();
        let ((name, _), (other, _)) = (rig.host("api"), rig.host("other"));
        let sandbox = with_secret(rig, &name, &other);
        let file = sandbox.home.data().join("sandboxes").join(&sandbox.id).join("record.json");
        let record: Value = serde_json::from_slice(&std::fs::read(file).expect("a record")).expect("JSON");
        let shim = record["private"]["shim"]["pid"].as_i64().expect("the shim");
        signal_to(i32::try_from(shim).expect("a process"), "KILL");
        // Commands inside take no shim; this does, and so brings another one.
        let text = sandbox.home.text(&["network", &sandbox.id]);
        assert!(text.contains("decided     0 allowed"), "{text}");
        let page: Value =
            serde_json::from_str(&plainly(&sandbox, &["curl", "-sS", &format!("https://{name}/")]))
                .expect("JSON");
        assert_eq!(injected(&page), [SECRET]);
    });
}

#[test]
fn headers_of_a_policy_that_comes_later() {
    inside("interception::headers_of_a_policy_that_comes_later", || {
        let rig = Rig::connect();
        let ((name, _), (other, _)) = (rig.host("api"), rig.host("other"));
        let sandbox = with_secret(rig, &name, &other);
        let inject = format!("{other}={HEADER}:env:{VARIABLE}");
        // The other way round: the programs inside trust the authority already.
        let set = ["network", &sandbox.id, "set", "--allow", &name, "--inject", &inject];
        let output = given(&sandbox.home, &set);
        assert_eq!(code(&output), 0, "{}", both(&output));
        let header = format!("{HEADER}: mine");
        for (name, expected) in [(&other, SECRET), (&name, "mine")] {
            let page = sandbox.json(&["curl", "-sS", "-H", &header, &format!("https://{name}/")]);
            assert_eq!(injected(&page), [expected]);
        }
        // One that was made without has no authority to trust, and is told so; its policy stays.
        let plain = sandbox.home.create(&["--allow", &name]);
        let output = given(&sandbox.home, &["network", &plain, "set", "--inject", &inject]);
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(code(&output) != 0 && words.contains(&format!("`{other}:443`")), "{words}");
        assert!(words.contains("certificate authority") && words.contains("make a sandbox"), "{words}");
        let policy = sandbox.home.text(&["network", &plain]);
        assert!(policy.contains(&name) && !policy.contains(&other), "{policy}");
        let url = format!("https://{name}/");
        sandbox.home.text(&["exec", &plain, "--", "curl", "-sS", "--cacert", TRUSTED, &url]);
    });
}
