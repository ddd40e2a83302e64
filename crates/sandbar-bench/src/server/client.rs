use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sandbar_wire::envd::{Frame, FrameDecoder, MAX_MESSAGE_BYTES, STREAM_CONTENT_TYPE, message_frame};
use serde_json::Value;
use tokio::net::TcpStream;

/// A connection that is kept, with as little as HTTP takes.
pub(super) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|why| why.to_string())?;
        stream.set_nodelay(true).map_err(|why| why.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
        // It ends with the sender.
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string() })
    }

    async fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::builder().method(method).uri(target).header("host", &self.host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).map_err(|why| why.to_string())?;
        self.sender.ready().await.map_err(|why| why.to_string())?;
        self.sender.send_request(request).await.map_err(|why| why.to_string())
    }

    /// Asks, and has the whole answer.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<(StatusCode, Bytes), String> {
        let response = self.send(method, target, headers, body).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await.map_err(|why| why.to_string())?.to_bytes()))
    }

    /// Begins a stream of the guest's.
    pub(super) async fn stream(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
        message: &Value,
    ) -> Result<Messages, String> {
        let more = [("content-type", STREAM_CONTENT_TYPE), ("connect-protocol-version", "1")];
        let headers = [headers, &more].concat();
        let response = self.send("POST", method, &headers, message_frame(message)).await?;
        match response.status() {
            StatusCode::OK => {
                let decoder = FrameDecoder::new(MAX_MESSAGE_BYTES);
                Ok(Messages { body: response.into_body(), decoder })
            }
            status => Err(format!("`{method}` answered {status}")),
        }
    }

    /// Runs a program without output to its successful end.
    pub(super) async fn run(&mut self, headers: &[(&str, &str)], program: &str) -> Result<(), String> {
        let message = serde_json::json!({"process": {"cmd": program}, "stdin": false});
        let mut messages = self.stream("/process.Process/Start", headers, &message).await?;
        let mut is_done = false;
        while let Some(message) = messages.next().await? {
            let end = &message["event"]["end"];
            is_done |= end["exited"] == true && end["exitCode"].as_i64().unwrap_or(0) == 0;
        }
        if is_done { Ok(()) } else { Err(format!("`{program}` did not end as it should")) }
    }
}

/// What a stream says.
pub(super) struct Messages {
    body: Incoming,
    decoder: FrameDecoder,
}

impl Messages {
    /// The next message; `None` is the proper end.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            match self.decoder.next_frame().map_err(|why| why.to_string())? {
                Some(end) if end.is_end() => return self.ended(&end).await,
                Some(frame) => {
                    return serde_json::from_slice(&frame.payload).map(Some).map_err(|why| why.to_string());
                }
                None => {}
            }
            let piece = self.body.frame().await.ok_or("the stream has no end")?;
            if let Ok(data) = piece.map_err(|why| why.to_string())?.into_data() {
                self.decoder.push(&data);
            }
        }
    }

    /// Takes the rest of the body, so that the connection can have another request.
    async fn ended(&mut self, end: &Frame) -> Result<Option<Value>, String> {
        while let Some(rest) = self.body.frame().await {
            rest.map_err(|why| why.to_string())?;
        }
        let last: Value = serde_json::from_slice(&end.payload).map_err(|why| why.to_string())?;
        if last["error"].is_null() { Ok(None) } else { Err(last["error"].to_string()) }
    }
}
