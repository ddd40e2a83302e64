//! Ports inside, reached through the server.

use futures::{SinkExt as _, StreamExt as _};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::common::{Made, PATIENCE, Rig};
use crate::envd::Stream;

/// Answers with what it was asked, or as a WebSocket that says everything again.
const SERVER: &str = r#"
import base64, hashlib, http.server, json, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket": return self.websocket()
        if self.path == "/hold": return self.hold()
        length = int(self.headers.get("Content-Length") or 0)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size); self.rfile.readline()
                if size == 0: break
        else: body = self.rfile.read(length)
        answer = json.dumps({"path": self.path, "headers": [[k.lower(), v] for k, v in self.headers.items()], "body": body.decode("latin-1")}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(answer))); self.send_header("X-Own", "1")
        self.send_header("Connection", "keep-alive, x-private"); self.send_header("X-Private", "1"); self.end_headers()
        self.wfile.write(answer)
    do_POST = do_PUT = do_DELETE = do_GET
    def hold(self):
        self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
        self.wfile.write(b"1\r\nx\r\n"); self.wfile.flush()
        if self.connection.recv(1) == b"": open("/tmp/gone", "w").close()
        self.close_connection = True
    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept); self.end_headers(); self.wfile.flush()
        while True:
            head = self.rfile.read(2)
            if len(head) < 2: return
            size = head[1] & 127
            if size == 126: size = int.from_bytes(self.rfile.read(2), "big")
            elif size == 127: size = int.from_bytes(self.rfile.read(8), "big")
            mask = self.rfile.read(4); data = bytearray(self.rfile.read(size))
            for i in range(size): data[i] ^= mask[i & 3]
            if head[0] & 15 == 8: self.close_connection = True; return
            out = bytes([head[0]]) + (bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big"))
            self.wfile.write(out + bytes(data)); self.wfile.flush()
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// Starts it, without waiting until it listens: that is the proxy's part.
async fn serve(rig: &Rig, sandbox: &Made, port: u16) -> Stream {
    let headers = [&sandbox.guest()[..], &[("content-type", "application/octet-stream")]].concat();
    let written = rig.ask(Method::POST, "/files?path=/tmp/server.py", &headers, SERVER).await;
    assert_eq!(written.status, StatusCode::OK, "{}", written.text());
    let mut stream = Stream::start(rig, sandbox, &format!("exec python3 /tmp/server.py {port}")).await;
    stream.next().await.expect("it starts").expect("a message");
    stream
}

fn to<'a>(sandbox: &'a Made, port: &'a str) -> [(&'a str, &'a str); 2] {
    [("e2b-sandbox-id", sandbox.id.as_str()), ("e2b-sandbox-port", port)]
}

/// Asks until it listens; python takes longer to start than a proxy waits.
async fn first(rig: &Rig, headers: &[(&str, &str)]) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let reply = rig.ask(Method::GET, "/x?y=1", headers, "").await;
        if reply.status == StatusCode::OK {
            return reply.json();
        }
        assert!(reply.text().contains("port is not open"), "{}", reply.text());
        assert!(begun.elapsed() < PATIENCE, "it never listened");
    }
}

fn header<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let all = answer["headers"].as_array().expect("headers");
    all.iter().find(|pair| pair[0] == name).and_then(|pair| pair[1].as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_pass_to_a_port() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let _serving = serve(&rig, &sandbox, 8080).await;
    let route = to(&sandbox, "8080");
    let own = [
        ("x-own", "yes"),
        ("x-forwarded-for", "6.6.6.6"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("x-access-token", "a page's own"),
    ];
    let answer = first(&rig, &[&route[..], &own[..]].concat()).await;
    assert_eq!(answer["path"], "/x?y=1");
    assert_eq!(header(&answer, "x-own"), Some("yes"));
    assert_eq!(header(&answer, "x-access-token"), Some("a page's own"));
    assert_eq!(header(&answer, "x-hop"), None, "what is of one connection ends with it");
    assert_eq!(header(&answer, "x-forwarded-for"), Some("127.0.0.1"), "nobody says who he is not");
    assert_eq!(header(&answer, "x-forwarded-proto"), Some("http"));
    assert_eq!(header(&answer, "x-forwarded-host"), Some(rig.address.to_string().as_str()));
    assert_eq!(header(&answer, "host"), Some(rig.address.to_string().as_str()));

    let reply = rig.ask(Method::POST, "/p", &route, vec![b'a'; 300_000]).await;
    assert_eq!(reply.json()["body"].as_str().map(str::len), Some(300_000));
    assert!(reply.headers.contains_key("x-own") && !reply.headers.contains_key("x-private"));
    // The name of a port, as `getHost` has it where names need no resolver.
    let name = format!("8080-{}.localhost:{}", sandbox.id, rig.address.port());
    let reply = rig.ask(Method::GET, "/named", &[("host", &name)], "").await;
    assert_eq!(
        (&reply.json()["path"], header(&reply.json(), "host")),
        (&json!("/named"), Some(name.as_str()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes_both_ways() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let _serving = serve(&rig, &sandbox, 8081).await;
    first(&rig, &to(&sandbox, "8081")).await;
    let mut request = format!("ws://{}/socket", rig.address).into_client_request().expect("a request");
    for (name, value) in to(&sandbox, "8081") {
        request.headers_mut().insert(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
    }
    let connected = tokio::time::timeout(PATIENCE, tokio_tungstenite::connect_async(request)).await;
    let (mut socket, _) = connected.expect("in time").expect("a WebSocket");
    for text in ["hi".to_owned(), "x".repeat(40_000)] {
        socket.send(Message::text(text.clone())).await.expect("sent");
        let answer = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time");
        assert_eq!(answer.expect("a message").expect("a message").into_text().expect("text").as_str(), text);
    }
    // Bug 21, for what is no HTTP any more.
    rig.control(Method::DELETE, &format!("/sandboxes/{}", sandbox.id), Value::Null).await;
    let end = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time");
    assert!(end.is_none_or(|end| end.is_err()), "it ends with its sandbox");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_that_are_not_public_ask_for_their_token() {
    let rig = Rig::local().await;
    let network = json!({"allowPublicTraffic": false, "maskRequestHost": "custom.example.com:${PORT}"});
    let sandbox = rig.create(json!({"templateID": "base", "network": network})).await;
    let other = rig.create(json!({"templateID": "base", "network": network})).await;
    let _serving = serve(&rig, &sandbox, 8082).await;
    let route = to(&sandbox, "8082");
    for token in
        [None, Some(""), Some(other.traffic.as_str()), Some(sandbox.token.as_str()), Some(rig.key.as_str())]
    {
        let token = token.map(|token| ("e2b-traffic-access-token", token));
        let headers = [&route[..], token.as_slice()].concat();
        let reply = rig.ask(Method::GET, "/", &headers, "").await;
        assert_eq!((reply.status, &reply.json()["code"]), (StatusCode::FORBIDDEN, &json!(403)), "{token:?}");
    }
    let headers = [&route[..], &[("e2b-traffic-access-token", sandbox.traffic.as_str())]].concat();
    let answer = first(&rig, &headers).await;
    assert_eq!(header(&answer, "host"), Some("custom.example.com:8082"));
    assert_eq!(header(&answer, "e2b-traffic-access-token"), None, "what runs inside does not learn it");
    // The guest's own API has its own token.
    let health = rig.ask(Method::GET, "/health", &sandbox.guest(), "").await;
    assert_eq!(health.status, StatusCode::NO_CONTENT);
}

/// What runs for a client is told that it went, also before all of the answer: a code interpreter interrupts what it runs then.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_is_seen_inside_and_nothing_is_held_back() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let _serving = serve(&rig, &sandbox, 8083).await;
    first(&rig, &to(&sandbox, "8083")).await;
    let mut stream = tokio::net::TcpStream::connect(rig.address).await.expect("the server listens");
    let head = format!(
        "GET /hold HTTP/1.1\r\nhost: localhost\r\ne2b-sandbox-id: {}\r\ne2b-sandbox-port: 8083\r\n\r\n",
        sandbox.id
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"1\r\nx\r\n") {
        let mut piece = [0; 1024];
        let got =
            tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await.expect("in time").expect("bytes");
        assert!(got > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..got]);
    }
    drop(stream);
    let begun = std::time::Instant::now();
    while rig.ask(Method::GET, "/files?path=/tmp/gone", &sandbox.guest(), "").await.status != StatusCode::OK {
        assert!(begun.elapsed() < PATIENCE, "nobody was told");
    }
}

/// The threat model's section on the server: what runs code asks for a token even where ports are public.
#[tokio::test(flavor = "multi_thread")]
async fn the_code_interpreters_port_asks_for_a_token_on_every_path() {
    let rig = Rig::local().await;
    let sandbox = rig.create(json!({"templateID": "base"})).await;
    let other = rig.create(json!({"templateID": "base"})).await;
    let _serving = serve(&rig, &sandbox, 49999).await;
    let route = to(&sandbox, "49999");
    for path in ["/", "/execute", "/contexts", "/contexts/x/restart", "/health"] {
        for token in [
            None,
            Some(("x-access-token", other.token.as_str())),
            Some(("e2b-traffic-access-token", other.traffic.as_str())),
        ] {
            let reply = rig.ask(Method::POST, path, &[&route[..], token.as_slice()].concat(), "{}").await;
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED, "{path} {token:?}");
        }
    }
    let by_access = [&route[..], &[("x-access-token", sandbox.token.as_str())]].concat();
    let answer = rig.ask(Method::POST, "/execute", &by_access, "{}").await;
    assert_eq!(header(&answer.json(), "x-access-token"), None);
    let by_traffic = [&route[..], &[("e2b-traffic-access-token", sandbox.traffic.as_str())]].concat();
    assert_eq!(rig.ask(Method::POST, "/contexts", &by_traffic, "{}").await.status, StatusCode::OK);
}
