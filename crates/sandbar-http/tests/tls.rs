//! Whom the client trusts, and that it speaks HTTP/2 where the server does.

mod common;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use bytes::Bytes;
use common::{config, words};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sandbar_core::{ErrorKind, Retry};
use sandbar_http::testing::{Answer, Scripted};
use sandbar_http::{Client, Proxy, Request, Secret};
use tokio::net::TcpListener;

/// A server for `localhost` with a certificate of its own making, which says which version it was asked in.
async fn server() -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let answer = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let version = format!("{:?}", request.version());
                Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(version))))
            });
            let io = TokioIo::new(stream);
            tokio::spawn(async move {
                if is_h2 {
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(io, answer)
                        .await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
                }
            });
        }
    });
    (address, pem(made.cert.der()))
}

fn pem(certificate: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn get(address: SocketAddr) -> Request {
    Request::get("get", format!("https://localhost:{}/", address.port()))
}

#[tokio::test]
async fn a_root_that_was_given_is_trusted_and_the_version_is_the_best_of_both() {
    let (address, pem) = server().await;
    let both = Client::new(config().with_roots(pem.clone())).unwrap();
    assert_eq!(both.send(get(address)).await.unwrap().body(), "HTTP/2.0");
    let older = Client::new(config().with_roots(pem).with_http1_only()).unwrap();
    assert_eq!(older.send(get(address)).await.unwrap().body(), "HTTP/1.1");
}

#[tokio::test]
async fn whoever_is_not_trusted_is_sent_nothing() {
    let (address, _) = server().await;
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let client = Client::new(config().with_roots(pem(other.cert.der()))).unwrap();
    let error = client.send(get(address)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, Retry::Never), "{error:?}");
    assert!(error.message().contains("can't be trusted") && error.hint().is_some(), "{error}");
}

#[tokio::test]
async fn what_is_no_certificate_or_no_proxy_is_said_at_once() {
    for pem in ["", "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"] {
        let error = Client::new(config().with_roots(pem)).unwrap_err();
        assert!(error.kind() == ErrorKind::Config && error.hint().is_some(), "{error:?}");
    }
    let proxy = Proxy::At(Secret::from("http://user:sentinel@[bad"));
    let error = Client::new(config().with_proxy(proxy)).unwrap_err();
    assert!(error.kind() == ErrorKind::Config && !words(&error).contains("sentinel"), "{error:?}");
}

#[tokio::test]
async fn a_proxy_is_asked_for_https_elsewhere_and_for_nothing_else() {
    let (address, pem) = server().await;
    let proxy = Scripted::start().await;
    let through = Proxy::At(Secret::from(proxy.url("").as_str()));
    let client = Client::new(config().with_roots(pem).with_proxy(through)).unwrap();
    assert_eq!(client.send(get(address)).await.unwrap().status(), 200);
    let plain = Scripted::answering(|_| Answer::status(204)).await;
    assert_eq!(client.send(Request::get("get", plain.url("/"))).await.unwrap().status(), 204);
    assert!(proxy.requests().is_empty());

    // The name is the proxy's to look up: nothing of it leaves this machine.
    let error = client.send(Request::post("make", "https://sandbox.example.test/")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, Retry::Safe), "{error:?}");
    let asked = proxy.requests();
    assert!(!asked.is_empty());
    for request in asked {
        assert_eq!(
            (request.method.as_str(), request.uri.to_string().as_str()),
            ("CONNECT", "sandbox.example.test:443")
        );
        assert!(!request.has(common::KEY));
    }
}
