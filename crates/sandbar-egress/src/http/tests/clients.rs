use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::rig::{PATIENCE, Rig};

/// Runs a program of this machine, if there is one of this name, beside a host that answers `rounds` requests. What it printed.
async fn run(rig: &mut Rig, program: &str, arguments: &[&str], rounds: usize) -> Option<String> {
    let port = rig.port().await.to_string();
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.replace("PORT", &port)).collect();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    let Ok(child) = command.spawn() else {
        eprintln!("skipped: no `{program}` here");
        return None;
    };
    let host = async {
        if rounds == 0 {
            return std::future::pending().await;
        }
        let mut host = rig.accept().await;
        for _ in 0..rounds {
            host.head().await;
            host.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n").await;
        }
        // Open until the program is done.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        output = timeout(PATIENCE, child.wait_with_output()) => {
            Some(String::from_utf8(output.expect("done in time").unwrap().stdout).unwrap())
        }
        () = host => unreachable!(),
    }
}

#[tokio::test]
async fn curl_is_served() {
    let mut rig = Rig::new().await;
    let arguments = ["-s", "-H", "Host: allowed.test", "http://127.0.0.1:PORT/a", "http://127.0.0.1:PORT/b"];
    let Some(printed) = run(&mut rig, "curl", &arguments, 2).await else { return };
    assert_eq!(printed, "hello\nhello\n");
    let mut rig = Rig::new().await;
    let Some(printed) =
        run(&mut rig, "curl", &["-si", "http://evil.test/", "--connect-to", "::127.0.0.1:PORT"], 0).await
    else {
        return;
    };
    assert!(
        printed.starts_with("HTTP/1.1 403 Forbidden\r\n") && printed.contains("A retry will not help."),
        "{printed}"
    );
}

#[tokio::test]
async fn python_is_served() {
    let script = "
import http.client
c = http.client.HTTPConnection('127.0.0.1', PORT)
for method, body in (('GET', None), ('POST', b''), ('PUT', None)):
    c.request(method, '/', body=body, headers={'Host': 'allowed.test'})
    print(c.getresponse().read().decode(), end='')
c.request('GET', '/', headers={'Host': 'evil.test'})
r = c.getresponse()
print(r.status, r.headers['x-sandbar-egress'])
";
    let mut rig = Rig::new().await;
    let Some(printed) = run(&mut rig, "python3", &["-c", script], 3).await else { return };
    assert_eq!(printed, "hello\nhello\nhello\n403 denied\n");
}
