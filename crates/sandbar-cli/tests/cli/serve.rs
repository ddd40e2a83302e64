use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::harness::{Home, both, code, signal};

/// A server for tests, on a port that is free.
const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--code-interpreter", "off"];

/// A server that runs, and what it printed to be pasted.
pub(crate) struct Serving {
    child: Child,
    lines: Vec<String>,
}

impl Serving {
    pub(crate) fn start(home: &Home, lines: usize) -> Self {
        Self::of(home.sandbar(SERVE), lines)
    }

    fn of(mut command: Command, lines: usize) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let lines = out.lines().take(lines).map(Result::unwrap).collect();
        Self { child, lines }
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        let prefix = format!("export {name}=");
        self.lines.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap()
    }

    /// Asks for a path and answers status and body.
    fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        let address = self.value("E2B_API_URL").strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let key = key.map(|key| format!("X-API-KEY: {key}\r\n")).unwrap_or_default();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{key}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks it to end, and answers with which code it did.
fn stop(mut serving: Serving) -> Option<i32> {
    signal(&serving.child, "TERM");
    serving.child.wait().unwrap().code()
}

#[test]
fn the_first_start_prints_a_key_that_opens_it_and_the_second_none() {
    let home = Home::new();
    let serving = Serving::start(&home, 4);
    let key = serving.value("E2B_API_KEY").to_owned();
    assert!(key.starts_with("e2b_") && key.len() == 44, "{key}");
    for other in ["E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"] {
        assert_eq!(serving.value("E2B_API_URL"), serving.value(other));
    }
    assert_eq!(serving.get("/health", None).0, 200);
    let (status, body) = serving.get("/teams", None);
    assert_eq!(status, 401);
    assert!(body.starts_with("{\"code\":401,\"message\":\"no API key"), "{body}");
    assert_eq!(serving.get("/teams", Some("e2b_0000")).0, 401);
    let (status, body) = serving.get("/teams", Some(&key));
    assert_eq!(status, 200);
    assert!(!body.contains(&key), "{body}");
    let (status, counts) = serving.get("/metrics", None);
    assert_eq!(status, 200);
    assert!(counts.contains("sandbar_requests_total{"), "{counts}");
    assert!(!counts.contains(&key), "{counts}");
    assert_eq!(stop(serving), Some(0));

    let again = Serving::start(&home, 3);
    assert!(!again.lines.iter().any(|line| line.contains("E2B_API_KEY")), "{:?}", again.lines);
    assert_eq!(again.get("/teams", Some(&key)).0, 200);
    assert_eq!(stop(again), Some(0));
}

#[test]
fn keys_are_made_listed_and_taken_back_beside_a_server() {
    let home = Home::new();
    let made = home.json(&["key", "create", "ci", "--json"]);
    let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
    let listed = home.text(&["key", "ls"]);
    assert!(listed.contains(id) && listed.contains("ci") && !listed.contains(key), "{listed}");

    // There is one already, so the server makes none.
    let serving = Serving::start(&home, 3);
    assert_eq!(serving.get("/teams", Some(key)).0, 200);
    let other = home.text(&["key", "create"]);
    assert_eq!(serving.get("/teams", Some(other.trim())).0, 200);
    assert_eq!(code(&home.run(&["key", "rm", id])), 0);
    crate::harness::wait_until("the key opens nothing any more", || {
        serving.get("/teams", Some(key)).0 == 401
    });
    let gone = home.run(&["key", "rm", id]);
    assert_eq!(code(&gone), 1, "{}", both(&gone));
}

#[test]
fn an_address_that_others_reach_needs_a_key_first() {
    let home = Home::new();
    let refused = home.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(code(&refused), 125, "{}", both(&refused));
    assert!(both(&refused).contains("`sandbar key create`"), "{}", both(&refused));
    assert_eq!(home.json(&["key", "ls", "--json"])["keys"], serde_json::json!([]));
}

#[test]
fn the_limit_on_open_files_is_raised_to_what_may_be() {
    let home = Home::new();
    let lowered = &["sh", "-c", "ulimit -S -n 256 && ulimit -H -n 2000 && exec \"$@\"", "sh"];
    let serving = Serving::of(home.sandbar_by(lowered, SERVE), 4);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.child.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().skip(3).take(2).collect::<Vec<_>>(), ["2000", "2000"]);
}

#[test]
fn what_can_not_be_meant_is_refused_before_anything_is_made() {
    let home = Home::new();
    let open = home.current().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let open = open.to_str().unwrap();
    for (wrong, words) in [
        (&["--public-url", "foo"][..], "`foo`"),
        (&["--domain", "*.x"], "`*.x`"),
        (&["--domain", "../x"], "`../x`"),
        (&["--max-sandboxes", "0"], "at least one sandbox"),
        (&["--max-rate", "0"], "one request a second"),
        (&["--data", open], "chmod go-w"),
    ] {
        let refused = home.run(&[SERVE, wrong].concat());
        assert_eq!(code(&refused), 125, "{wrong:?}: {}", both(&refused));
        assert!(both(&refused).contains(words), "{wrong:?}: {}", both(&refused));
    }
    assert!(!std::path::Path::new(open).join("server.db").exists());
    assert_eq!(home.json(&["key", "ls", "--json"])["keys"], serde_json::json!([]));
}

#[test]
fn json_says_once_what_is_to_be_pasted() {
    let home = Home::new();
    let told = |home: &Home| {
        let arguments = ["serve", "--listen", "localhost:0", "--code-interpreter", "off", "--json"];
        let serving = Serving::of(home.sandbar(&arguments), 1);
        serde_json::from_str::<serde_json::Value>(&serving.lines[0]).unwrap()
    };
    let first = told(&home);
    assert!(first["key"].as_str().unwrap().starts_with("e2b_"), "{first}");
    assert!(first["api_url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{first}");
    assert_eq!(first["api_url"], first["volume_api_url"]);
    assert!(told(&home)["key"].is_null());
}
