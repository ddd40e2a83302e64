use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use async_trait::async_trait;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Uri;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use sandbar_core::{Error, ErrorKind, Result};
use tokio::net::TcpStream;

/// Most bytes read of an answer: a collector says a word or two.
const MAX_ANSWER: usize = 64 << 10;
/// The port of a URL without one.
const HTTP_PORT: u16 = 80;

/// Sends a request over a connection of its own. Time is bounded by whoever calls.
#[derive(Debug)]
pub(super) struct Client;

/// Refuses an endpoint that this client can't reach.
pub(super) fn check_endpoint(url: &str) -> Result<()> {
    // The text is not shown: URLs hold secrets at times.
    let complain = |why: &str, hint: &str| {
        Err(Error::new(ErrorKind::Config, "export spans", format!("the collector's endpoint {why}"))
            .with_hint(hint))
    };
    let here = "expected a URL such as `http://127.0.0.1:4318`";
    let Ok(uri) = url.parse::<Uri>() else { return complain("is no URL", here) };
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return complain("wants TLS, which is not in this build", "run a collector on this machine");
        }
        _ => return complain("is no HTTP URL", here),
    }
    match address(&uri) {
        Some(_) => Ok(()),
        None => complain("has a name that is not looked up here", "give its address, or `localhost`"),
    }
}

fn address(uri: &Uri) -> Option<SocketAddr> {
    let port = uri.port_u16().unwrap_or(HTTP_PORT);
    let host = uri.host()?;
    if host.eq_ignore_ascii_case("localhost") {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    let ip: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    Some((ip, port).into())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let address = address(request.uri()).ok_or("the endpoint has no address")?;
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let (mut parts, body) = request.into_parts();
        if let Some(authority) = parts.uri.authority() {
            // Without what may stand before the host: that is no part of its name.
            let host = authority.as_str().rsplit('@').next().unwrap_or_default();
            parts.headers.insert(HOST, HeaderValue::from_str(host)?);
        }
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        parts.uri = path.parse()?;
        let exchange = async move {
            let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            // With the sender the connection ends.
            drop(sender);
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        let (answer, _) = futures::join!(exchange, connection);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_reached_is_refused_without_showing_it() {
        for good in ["http://localhost:4318", "http://127.0.0.1/v1/traces", "http://[::1]:4318/x"] {
            assert!(check_endpoint(good).is_ok(), "{good}");
        }
        for bad in ["https://canary@127.0.0.1", "grpc://127.0.0.1", "http://canary.example:1", "canary", ""] {
            let error = check_endpoint(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
