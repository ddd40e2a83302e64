//! A domain of its own with TLS: names of ports lead to them, with a certificate of a test's authority and addresses of the test's own.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sandbar_server::TlsFiles;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{PATIENCE, Reply, Rig};

const DOMAIN: &str = "sbx.test";

/// An authority, and certificates for the domain and all names below it.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "a test's authority");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Puts a new certificate where the server looks for it.
    fn write(&self, files: &TlsFiles) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new([DOMAIN.to_owned(), format!("*.{DOMAIN}")]).expect("names");
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(&files.key, pem("PRIVATE KEY", &key.serialize_der())).expect("written");
        std::fs::write(&files.certificate, pem("CERTIFICATE", certificate.der())).expect("written");
        certificate.der().clone()
    }

    fn connector(&self, protocol: &[u8]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a root");
        let mut config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(roots)
                .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

fn pem(kind: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

fn files(folder: &Path) -> TlsFiles {
    TlsFiles { certificate: folder.join("chain.pem"), key: folder.join("key.pem") }
}

async fn rig(authority: &Authority) -> Rig {
    Rig::local_with(|folder, config| {
        let files = files(folder);
        authority.write(&files);
        config.tls = Some(files);
        // Names have the port that the test finds out later; only what stands before it is looked at.
        config.domain = Some(format!("{DOMAIN}:8443"));
    })
    .await
}

/// The test's own resolver: every name is the server's address.
async fn connect(
    rig: &Rig,
    authority: &Authority,
    name: &str,
    protocol: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(rig.address).await?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connecting = authority.connector(protocol).connect(name, stream);
    tokio::time::timeout(PATIENCE, connecting).await.expect("in time")
}

async fn ask(
    rig: &Rig,
    authority: &Authority,
    name: &str,
    is_h2: bool,
    request: http::request::Builder,
    body: &str,
) -> Reply {
    let protocol: &[u8] = if is_h2 { b"h2" } else { b"http/1.1" };
    let stream = connect(rig, authority, name, protocol).await.expect("a connection");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
    let body = Full::new(Bytes::from(body.to_owned()));
    let response = if is_h2 {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("HTTP/2");
        tokio::spawn(connection);
        sender.send_request(request.body(body).expect("a request")).await
    } else {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP/1.1");
        tokio::spawn(connection);
        sender.send_request(request.body(body).expect("a request")).await
    };
    let (parts, body) = response.expect("an answer").into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Reply { status: parts.status, headers: parts.headers, body }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_below_the_domain_lead_to_ports() {
    let authority = Authority::new();
    let rig = rig(&authority).await;
    for is_h2 in [false, true] {
        let api = format!("api.{DOMAIN}");
        let uri = |name: &str, path: &str| {
            if is_h2 { format!("https://{name}:8443{path}") } else { path.to_owned() }
        };
        let request = |method: &str, name: &str, path: &str| {
            let request = Request::builder().method(method).uri(uri(name, path));
            if is_h2 { request } else { request.header("host", format!("{name}:8443")) }
        };
        let create = request("POST", &api, "/v2/sandboxes")
            .header("x-api-key", &rig.key)
            .header("content-type", "application/json");
        let made = ask(&rig, &authority, &api, is_h2, create, r#"{"templateID":"base"}"#).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let made = made.json();
        assert_eq!(made["domain"], json!(format!("{DOMAIN}:8443")));
        let (id, token) =
            (made["sandboxID"].as_str().expect("an id"), made["envdAccessToken"].as_str().expect("a token"));

        let guest = format!("49983-{id}.{DOMAIN}");
        let health = ask(&rig, &authority, &guest, is_h2, request("GET", &guest, "/health"), "").await;
        assert_eq!(health.status, StatusCode::NO_CONTENT);
        let written = request("POST", &guest, "/files?path=/tmp/www/index.html")
            .header("x-access-token", token)
            .header("content-type", "application/octet-stream");
        let written = ask(&rig, &authority, &guest, is_h2, written, "a page").await;
        assert_eq!(written.status, StatusCode::OK, "{}", written.text());
        let sandbox = rig.sandbox(id).await;
        let server = "cd /tmp/www && (python3 -m http.server 3000 >/dev/null 2>&1 &)";
        sandbox.commands().run(&sandbar::Command::shell(server)).await.expect("it starts");
        let port = format!("3000-{id}.{DOMAIN}");
        let begun = Instant::now();
        loop {
            let page = ask(&rig, &authority, &port, is_h2, request("GET", &port, "/"), "").await;
            if page.status == StatusCode::OK {
                assert_eq!(page.text(), "a page");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", page.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_tls_is_not_waited_for_and_a_new_certificate_is_used() {
    let authority = Authority::new();
    let rig = rig(&authority).await;
    let mut plain = TcpStream::connect(rig.address).await.expect("the server listens");
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    let end = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await.expect("in time");
    assert!(end.is_err() || !answer.starts_with(b"HTTP"), "{answer:?}");

    let renewed = authority.write(&files(rig.folder()));
    let begun = Instant::now();
    loop {
        let stream = connect(&rig, &authority, DOMAIN, b"h2").await.expect("a connection");
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        if shown == Some(&renewed) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the old certificate is still shown");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Half a file harms nothing.
    std::fs::write(files(rig.folder()).certificate, "-----BEGIN").expect("written");
    connect(&rig, &authority, DOMAIN, b"h2").await.expect("a connection");
}

/// A resolver and an authority of one's own are all that is needed; nothing here asks the machine's.
#[test]
fn tls_of_files_that_are_none_says_which() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = files(folder.path());
    std::fs::write(&files.certificate, "nothing").expect("written");
    std::fs::write(&files.key, "secret words").expect("written");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut config = crate::common::config(folder.path());
    config.tls = Some(files.clone());
    let error =
        runtime.block_on(sandbar_server::Server::bind(config, Arc::new(sandbar::MemoryProvider::new())));
    let error = error.expect_err("there is no certificate");
    assert!(
        error.message().contains("chain.pem") && !format!("{error:?}").contains("secret words"),
        "{error}"
    );
}
