//! A client that answers what went wrong: the server may be gone.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use sandbar_wire::envd::{FrameDecoder, MAX_MESSAGE_BYTES, STREAM_CONTENT_TYPE, message_frame};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::common::{Made, PATIENCE};

/// Where the server is, and a key.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
}

/// What a stream of the guest's says. It ends with its owner.
pub(crate) struct Stream {
    body: Incoming,
    decoder: FrameDecoder,
    _sender: SendRequest<Full<Bytes>>,
}

impl Api {
    /// Asks once, on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<(StatusCode, Bytes), String> {
        let answered = async {
            let (_sender, response) = self.send(method, target, headers, body.into()).await?;
            let status = response.status();
            let body = response.into_body().collect().await.map_err(|why| format!("{target}: {why}"))?;
            Ok((status, body.to_bytes()))
        };
        within(PATIENCE, target, answered).await
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<(SendRequest<Full<Bytes>>, Response<Incoming>), String> {
        let text = |why: &dyn std::fmt::Display| format!("{target}: {why}");
        let stream = TcpStream::connect(self.address).await.map_err(|why| text(&why))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|why| text(&why))?;
        tokio::spawn(connection);
        let mut request =
            Request::builder().method(method).uri(target).header("host", self.address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).map_err(|why| text(&why))?;
        let response = sender.send_request(request).await.map_err(|why| text(&why))?;
        Ok((sender, response))
    }

    /// Asks the control plane, and has the answer if it is as expected.
    pub(crate) async fn control(
        &self,
        method: Method,
        target: &str,
        body: Value,
        expected: StatusCode,
    ) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("x-api-key", self.key.as_str()), ("content-type", "application/json")];
        let (status, answer) = self.ask(method, target, &headers, body).await?;
        if status != expected {
            return Err(format!("{target}: {status}: {}", String::from_utf8_lossy(&answer)));
        }
        Ok(serde_json::from_slice(&answer).unwrap_or_default())
    }

    pub(crate) async fn create(&self) -> Result<Made, String> {
        let body = json!({"templateID": "base", "timeout": 600});
        let made = self.control(Method::POST, "/v2/sandboxes", body, StatusCode::CREATED).await?;
        Ok(Made::of(&made))
    }

    pub(crate) async fn kill(&self, id: &str) -> Result<(), String> {
        let target = format!("/sandboxes/{id}");
        self.control(Method::DELETE, &target, Value::Null, StatusCode::NO_CONTENT).await.map(drop)
    }

    /// Ids of all that are there.
    pub(crate) async fn list(&self) -> Result<Vec<String>, String> {
        let listed = self.control(Method::GET, "/v2/sandboxes", Value::Null, StatusCode::OK).await?;
        let listed = listed.as_array().ok_or("the listing is no list")?;
        Ok(listed.iter().filter_map(|one| one["sandboxID"].as_str().map(str::to_owned)).collect())
    }

    /// Begins a stream of the guest's.
    pub(crate) async fn stream(&self, made: &Made, method: &str, message: &Value) -> Result<Stream, String> {
        let more = [("content-type", STREAM_CONTENT_TYPE), ("connect-protocol-version", "1")];
        let headers = [&made.guest()[..], &more].concat();
        let sent = self.send(Method::POST, method, &headers, message_frame(message));
        let (sender, response) = within(PATIENCE, method, sent).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("{method}: {}", response.status()));
        }
        let decoder = FrameDecoder::new(MAX_MESSAGE_BYTES);
        Ok(Stream { body: response.into_body(), decoder, _sender: sender })
    }

    /// Starts a shell command, and answers its number as well.
    pub(crate) async fn start(&self, made: &Made, script: &str) -> Result<(Stream, Value), String> {
        let message = json!({"process": {"cmd": "/bin/sh", "args": ["-c", script]}, "stdin": false});
        let mut stream = self.stream(made, "/process.Process/Start", &message).await?;
        let first = stream.next().await?.ok_or("a process ended before it began")?;
        Ok((stream, first["event"]["start"]["pid"].clone()))
    }

    /// Meets a process again that somebody started.
    pub(crate) async fn meet(&self, made: &Made, pid: &Value) -> Result<(), String> {
        let select = json!({"process": {"pid": pid}});
        let mut stream = self.stream(made, "/process.Process/Connect", &select).await?;
        let first = stream.next().await?.unwrap_or_default();
        if first["event"]["start"]["pid"] == *pid { Ok(()) } else { Err(format!("process {pid}: {first}")) }
    }

    /// What a shell command that succeeds says.
    pub(crate) async fn run(&self, made: &Made, script: &str) -> Result<String, String> {
        use base64::Engine as _;
        let (mut stream, _) = self.start(made, script).await?;
        let mut output = Vec::new();
        while let Some(message) = stream.next().await? {
            let event = &message["event"];
            if let Some(text) = event["data"]["stdout"].as_str() {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                output.extend(bytes.map_err(|why| why.to_string())?);
            }
            if !event["end"].is_null() && event["end"]["exitCode"].as_i64().unwrap_or(0) != 0 {
                return Err(format!("`{script}`: {}", event["end"]));
            }
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

impl Stream {
    /// The next message; `None` is the proper end, and an error one that was broken off.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(|why| why.to_string())? {
                return if frame.is_end() {
                    Ok(None)
                } else {
                    serde_json::from_slice(&frame.payload).map(Some).map_err(|why| why.to_string())
                };
            }
            let piece = async { self.body.frame().await.ok_or_else(|| "it has no end".to_owned()) };
            let piece = within(PATIENCE, "a stream", piece).await?.map_err(|why| why.to_string())?;
            if let Ok(data) = piece.into_data() {
                self.decoder.push(&data);
            }
        }
    }
}

/// An error instead of a wait without end.
async fn within<T>(
    patience: Duration,
    what: &str,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let late = || format!("{what}: no answer after {} s", patience.as_secs());
    tokio::time::timeout(patience, work).await.map_err(|_| late())?
}
