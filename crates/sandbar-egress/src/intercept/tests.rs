use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use sandbar_core::{DecisionReason, HeaderInjection, Hostname, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{Authority, Trust, serve};
use crate::http::{HttpContext, HttpEvent};
use crate::peek::hello;
use crate::{DialError, Dialer, Ruling};

const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "Bearer s3cret-value";

struct Loopback(std::net::SocketAddr);

#[async_trait]
impl Dialer for Loopback {
    async fn dial(&self) -> Result<TcpStream, DialError> {
        TcpStream::connect(self.0).await.map_err(|cause| DialError::Unreachable(None, cause))
    }
}

/// A sandbox with an authority, and a host outside with a certificate of another one.
struct Rig {
    inside: Arc<Authority>,
    outside: Arc<Authority>,
    listener: TcpListener,
    events: Arc<Mutex<Vec<HttpEvent>>>,
    header: HeaderInjection,
}

fn name(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

impl Rig {
    async fn new() -> Self {
        Self {
            inside: Arc::new(Authority::generate("inside").unwrap()),
            outside: Arc::new(Authority::generate("outside").unwrap()),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            events: Arc::default(),
            header: HeaderInjection::new("authorization", SECRET).unwrap(),
        }
    }

    /// The sandbox's side of TLS with the gateway.
    async fn connect(&self, trust: &Trust) -> std::io::Result<TlsStream<DuplexStream>> {
        let (client, mut served) = tokio::io::duplex(64 << 10);
        let (authority, header, events) = (self.inside.clone(), self.header.clone(), self.events.clone());
        let trusted = Trust::of([self.outside.certificate()]).unwrap();
        let context = HttpContext {
            name: name("api.test"),
            port: 443,
            judge: Arc::new(move || Ruling {
                inject: Some(Arc::new([header.clone()])),
                ..Ruling::allowed(DecisionReason::Rule, None)
            }),
            dial: Arc::new(Loopback(self.listener.local_addr().unwrap())),
            report: Arc::new(move |event| events.lock().unwrap().push(event)),
        };
        tokio::spawn(async move {
            let deadline = Instant::now() + PATIENCE;
            let (hello, read) = hello(&mut served, deadline, 16 << 10).await.unwrap();
            hello.check(&context.name).unwrap();
            serve(served, read, &authority, &trusted, context).await
        });
        let to = ServerName::try_from("api.test").unwrap();
        TlsConnector::from(trust.client()).connect(to, client).await
    }

    fn trusts_inside(&self) -> Trust {
        Trust::of([self.inside.certificate()]).unwrap()
    }

    /// Serves one connection outside as `as_name`; gives what came up to the end of a head, after answering it.
    async fn answer(&self, as_name: &str) -> std::io::Result<String> {
        let server = self.outside.server(&name(as_name)).unwrap();
        let stream = timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap().0;
        let mut stream = TlsAcceptor::from(server).accept(stream).await?;
        let head = until(&mut stream, "\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await?;
        Ok(head)
    }
}

async fn until(stream: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut held = Vec::new();
    while !held.ends_with(end.as_bytes()) {
        let count = timeout(PATIENCE, stream.read_buf(&mut held)).await.expect("in time").unwrap();
        assert!(count > 0, "the end after {}", held.escape_ascii());
    }
    String::from_utf8(held).unwrap()
}

#[tokio::test]
async fn a_header_that_the_sandbox_never_sees_goes_out() {
    let rig = Rig::new().await;
    let mut client = rig.connect(&rig.trusts_inside()).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    client.write_all(b"GET /v1 HTTP/1.1\r\nHost: api.test\r\nAuthorization: mine\r\nAUTHORIZATION: too\r\nConnection: authorization\r\n\r\n").await.unwrap();
    let head = rig.answer("api.test").await.unwrap();
    assert_eq!(head.to_lowercase().matches("authorization").count(), 1, "{head}");
    assert!(head.contains(SECRET), "{head}");
    let answer = until(&mut client, "hello").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && !answer.contains("s3cret"), "{answer}");
    assert!(!format!("{:?}", rig.events.lock().unwrap()).contains("s3cret"));
}

#[tokio::test]
async fn the_host_within_tls_is_judged_too() {
    for request in [
        "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET https://evil.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
        "GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: api.test:80\r\n\r\n",
    ] {
        let rig = Rig::new().await;
        let mut client = rig.connect(&rig.trusts_inside()).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let answer = until(&mut client, "A retry will not help.\n").await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        let events = rig.events.lock().unwrap();
        assert_eq!((events[0].verdict, events[0].reason), (Verdict::Denied, DecisionReason::NameMismatch));
    }
}

#[tokio::test]
async fn a_host_that_cannot_prove_its_name_gets_no_secret() {
    let rig = Rig::new().await;
    let mut client = rig.connect(&rig.trusts_inside()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await.unwrap();
    assert!(rig.answer("evil.test").await.is_err());
    let answer = until(&mut client, ".\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n") && !answer.contains("s3cret"), "{answer}");
    let events = rig.events.lock().unwrap();
    assert_eq!((events[0].verdict, events[0].reason), (Verdict::Failed, DecisionReason::TlsFailed));
}

#[tokio::test]
async fn a_sandbox_that_does_not_trust_the_authority_is_told_of() {
    let rig = Rig::new().await;
    assert!(rig.connect(&Trust::of([rig.outside.certificate()]).unwrap()).await.is_err());
    let told = || rig.events.lock().unwrap().first().map(|event| (event.verdict, event.reason));
    timeout(PATIENCE, async {
        while told().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert_eq!(told(), Some((Verdict::Failed, DecisionReason::TlsFailed)));
}

#[tokio::test]
async fn a_value_that_is_not_known_sends_nothing() {
    let mut rig = Rig::new().await;
    let text = serde_json::to_string(&rig.header).unwrap();
    rig.header = serde_json::from_str(&text).unwrap();
    let mut client = rig.connect(&rig.trusts_inside()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await.unwrap();
    let answer = until(&mut client, ".\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("`authorization`"), "{answer}");
}

#[test]
fn an_authority_outlives_its_gateway() {
    let authority = Authority::generate("sb-1").unwrap();
    let sealed = authority.to_sealed();
    let again = Authority::from_sealed(sealed.reveal()).unwrap();
    assert_eq!(again.certificate_pem(), authority.certificate_pem());
    assert_eq!(again.to_sealed(), sealed);
    let key = sealed.reveal().windows(8).map(|bytes| bytes.escape_ascii().to_string()).collect::<Vec<_>>();
    let shown = format!("{authority:?} {sealed:?} {}", authority.certificate_pem());
    assert!(!key.iter().any(|piece| piece.len() > 20 && shown.contains(piece)));
    // What it signs after that is good to whoever trusts its certificate.
    handshake(
        &again.server(&name("api.test")).unwrap(),
        &Trust::of([authority.certificate()]).unwrap().client(),
    )
    .unwrap();
    for damaged in
        [&sealed.reveal()[1..], &sealed.reveal()[..90], b"", b"sbca\x02", &[sealed.reveal(), b"x"].concat()]
    {
        let error = Authority::from_sealed(damaged).unwrap_err();
        assert!(error.message().contains("damaged"), "{error}");
    }
}

#[test]
fn certificates_are_for_one_name_and_kept_within_a_bound() {
    let authority = Authority::generate("sb-1").unwrap();
    let trust = Trust::of([authority.certificate()]).unwrap().client();
    let server = authority.server(&name("api.test")).unwrap();
    handshake(&server, &trust).unwrap();
    assert!(Arc::ptr_eq(&server, &authority.server(&name("api.test")).unwrap()));
    let other = authority.server(&name("other.test")).unwrap();
    assert!(handshake(&other, &trust).unwrap_err().to_string().contains("not valid for name"));
    for n in 0..300 {
        authority.server(&name(&format!("h{n}.test"))).unwrap();
    }
    assert!(!Arc::ptr_eq(&server, &authority.server(&name("api.test")).unwrap()), "the oldest goes first");
    let long = vec!["a".repeat(60); 4].join(".");
    authority.server(&name(&long)).unwrap();
}

/// TLS in memory with `api.test`.
fn handshake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> Result<(), rustls::Error> {
    let mut client =
        rustls::ClientConnection::new(client.clone(), ServerName::try_from("api.test").unwrap())?;
    let mut server = rustls::ServerConnection::new(server.clone())?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &wire[..]).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut &wire[..]).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn strict_clients_take_the_certificates() {
    let authority = Authority::generate("sb-1").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("ca.pem");
    std::fs::write(&list, authority.certificate_pem()).unwrap();
    let verify =
        std::process::Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&list).output();
    let Ok(shown) = verify else {
        eprintln!("skipped: no `openssl` here");
        return;
    };
    let text = String::from_utf8(shown.stdout).unwrap();
    for part in [
        "CA:TRUE, pathlen:0",
        "Certificate Sign, CRL Sign",
        "Subject Key Identifier",
        "CN = Sandbar egress sb-1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn openssl_finds_the_certificate_by_its_hash() {
    // As `openssl x509 -subject_hash` says of a certificate with this label.
    let authority = Authority::generate("shenrfweez9jt0h0rhc9").unwrap();
    assert_eq!(authority.subject_hash(), "01487d78");
    let restored = Authority::from_sealed(authority.to_sealed().reveal()).unwrap();
    assert_eq!(restored.subject_hash(), "01487d78");
}
