use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::harness::{Home, both, code, signal, start, wait_until};

/// Answers each connection with one line.
const SERVER: &str = "import socket
s = socket.create_server(('127.0.0.1', 8000))
print('up', flush=True)
while True:
    c, _ = s.accept()
    c.sendall(b'hello from inside\\n')
    c.close()";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn greeting(address: &str) -> Option<String> {
    let mut text = String::new();
    TcpStream::connect(address).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn a_run_is_reached_at_the_port_that_was_chosen() {
    let home = Home::new();
    let port = free_port();
    let arguments = ["run", "-p", &format!("{port}:8000"), "--", "python3", "-c", SERVER];
    let mut child = start(&mut home.sandbar_in_foreground(&arguments));
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    assert_eq!(greeting(&format!("127.0.0.1:{port}")).unwrap(), "hello from inside\n");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", both(&output));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the port is free again");
}

#[test]
fn a_port_in_use_is_usage_and_leaves_nothing() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let publish = format!("{}:8000", taken.local_addr().unwrap().port());
    for arguments in [&["create", "-p", &publish][..], &["run", "-p", &publish, "--", "true"]] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 2, "{}", both(&output));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("somebody else listens there") && told.contains("hint:"), "{told}");
    }
    home.assert_empty();
    let id = home.create(&[]);
    let listen = taken.local_addr().unwrap().to_string();
    let output = home.run(&["port", &id, "8000", "--listen", &listen, "--json"]);
    assert_eq!(code(&output), 2, "{}", both(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(told["error"]["kind"], "already_exists");
    assert_eq!(told["error"]["resource"], format!("address `{listen}`"));
    assert_eq!(home.json(&["port", &id, "--json"])["ports"], json!([]));
}

#[test]
fn ports_are_published_listed_and_taken_back() {
    let home = Home::new();
    let id = home.create(&["--name", "demo"]);
    let address = home.text(&["port", "demo", "8000"]);
    assert_eq!(home.text(&["port", "demo", "8000"]), address, "the same again");
    let port: u16 = address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    let published = json!({"guest": 8000, "host": "127.0.0.1", "port": port, "open": false});
    assert_eq!(home.json(&["port", "demo", "--json"]), json!({"version": 1, "id": id, "ports": [published]}));
    assert_eq!(home.text(&["port", "demo"]), format!("PORT  ADDRESS\n8000  {address}"));
    let elsewhere = home.run(&["port", "demo", "8000", "--listen", &free_port().to_string()]);
    assert_eq!(code(&elsewhere), 125, "{}", both(&elsewhere));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains(&address));
    assert_eq!(home.text(&["port", "demo", "8000", "--remove"]), "");
    wait_until("the end of the address", || TcpStream::connect(&address).is_err());
    let again = home.run(&["port", "demo", "8000", "--remove"]);
    assert_eq!(code(&again), 1, "{}", both(&again));
    assert_eq!(home.json(&["port", "demo", "--json"])["ports"], json!([]));
}

#[test]
fn an_address_that_is_open_to_others_is_told_as_such() {
    let home = Home::new();
    let id = home.create(&[]);
    let output = home.run(&["port", &id, "8000", "--listen", "0.0.0.0"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("open to everybody") && told.contains("0.0.0.0:"), "{told}");
    assert_eq!(home.json(&["port", &id, "--json"])["ports"][0]["open"], true);
    let output = home.run(&["run", "-p", "0.0.0.0:0:8000", "--", "true"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("open to everybody"), "{}", both(&output));
    let loopback = home.run(&["run", "-p", "8000", "--", "true"]);
    assert!(loopback.stderr.is_empty(), "{}", both(&loopback));
}

#[test]
fn a_chosen_address_comes_back_with_a_new_shim() {
    let home = Home::new();
    let port = free_port();
    let id = home.create(&["-p", &format!("{port}:8000")]);
    let mut server = start(&mut home.sandbar(&["exec", &id, "--", "python3", "-c", SERVER]));
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let shim = || {
        let record = std::fs::read(home.data().join("sandboxes").join(&id).join("record.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        record["private"]["shim"]["pid"].as_i64().unwrap().to_string()
    };
    let kill = |pid: &str| {
        assert!(std::process::Command::new("kill").args(["-9", pid]).status().unwrap().success());
        wait_until("the end of the shim", || TcpStream::connect(("127.0.0.1", port)).is_err());
    };
    kill(&shim());
    home.text(&["exec", &id, "--", "true"]);
    home.text(&["stats", &id]);
    assert_eq!(greeting(&format!("127.0.0.1:{port}")).unwrap(), "hello from inside\n");
    // Somebody else takes it while no shim holds it: told, and not moved elsewhere.
    kill(&shim());
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let record = home.json(&["describe", &id, "--json"]);
    assert_eq!(record["ports"], json!([]), "{record}");
    assert!(record["reason"].as_str().unwrap().contains("nobody serves"), "{record}");
    assert_eq!(home.json(&["ls", "--json"])[0]["ports"], json!([]));
    assert_eq!(home.json(&["port", &id, "--json"])["ports"], json!([]), "what is not ours is not listed");
    let record = home.json(&["describe", &id, "--json"]);
    assert_eq!(record["ports"], json!([]), "{record}");
    assert!(record["reason"].as_str().unwrap().contains("somebody else listens there"), "{record}");
    drop(taken);
    let listen = port.to_string();
    assert_eq!(home.text(&["port", &id, "8000", "--listen", &listen]), format!("127.0.0.1:{port}"));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_slow_writer_is_no_reason_to_lose_bytes() {
    let home = Home::new();
    let id = home.create(&["-p", "8000"]);
    let echo = "import socket
s = socket.create_server(('127.0.0.1', 8000))
print('up', flush=True)
c, _ = s.accept()
while data := c.recv(65536):
    c.sendall(data)";
    let mut server = start(&mut home.sandbar(&["exec", &id, "--", "python3", "-c", echo]));
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = home.text(&["port", &id, "8000"]);
    let mut stream = TcpStream::connect(&address).unwrap();
    let sent: Vec<u8> = (0..1_000_000_u32).map(|index| (index % 251) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let writing = {
        let sent = sent.clone();
        std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        })
    };
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    server.wait().unwrap();
}
