//! A command that is run inside once, for whoever guards the sandbox: as its default user, in its default folder, without input.

use std::collections::VecDeque;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use sandbar_core::{ErrorKind, ExitStatus, Result};
use sandbar_guest::{
    CALL, Failure, Messages, Next, Operation, Reuse, START, nonsense, readable, request, status_of, whole,
};
use sandbar_wire::envd::{
    Code, ProcessConfig, ProcessEvent, RpcError, STREAM_CONTENT_TYPE, StartRequest, TIMEOUT_HEADER,
    decode_process_event, message_frame,
};
use tokio::time::timeout;

use super::pool::Pool;
use crate::config::BACKEND;
use crate::error::fail;
use crate::home::Folder;

/// Bytes of its output that are kept, the last ones: enough for a line or two in an error.
const KEPT: usize = 2 << 10;
/// Most bytes that it may say: it is asked for its status, and what it says costs the host.
const MAX_SAID: usize = 1 << 20;
/// How much longer than its time the agent may take to end it.
const GRACE: Duration = Duration::from_secs(10);
/// Largest refusal that is read, in bytes.
const MAX_REFUSAL: usize = 64 << 10;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Once {
    /// Its status; `None` where its time was over and it was ended.
    pub(crate) status: Option<ExitStatus>,
    /// The last that it said, on both streams.
    pub(crate) said: String,
}

/// Runs `words` in the sandbox of `folder` for at most `bound`. The inner error is the agent's refusal to start it.
pub(crate) async fn once(
    folder: &Folder,
    words: &[String],
    bound: Duration,
    operation: &'static str,
) -> Result<std::result::Result<Once, RpcError>> {
    match timeout(bound.saturating_add(GRACE), run(folder, words, bound, operation)).await {
        Ok(done) => done,
        Err(_) => Err(fail(ErrorKind::Unavailable, operation, "the agent does not end a command in time")),
    }
}

async fn run(
    folder: &Folder,
    words: &[String],
    bound: Duration,
    operation: &'static str,
) -> Result<std::result::Result<Once, RpcError>> {
    let of = Operation::new(operation, BACKEND);
    let broken = |failure: &Failure| {
        let why = match failure {
            Failure::Gone => "it does not listen any more".to_owned(),
            Failure::Broken(cause) => cause.to_string(),
            Failure::Connect(cause) => cause.to_string(),
            Failure::Silent(bound) => format!("it said nothing for {} s", bound.as_secs()),
        };
        fail(ErrorKind::Unavailable, operation, format!("the agent is lost: {why}"))
    };
    let (cmd, rest) =
        words.split_first().map_or((String::new(), Vec::new()), |(cmd, rest)| (cmd.clone(), rest.to_vec()));
    let process = ProcessConfig { cmd, args: rest, envs: std::collections::BTreeMap::default(), cwd: None };
    let message = StartRequest { process, pty: None, tag: None, stdin: Some(false) };
    let limit = bound.as_millis().max(1).to_string();
    let headers = [(CONTENT_TYPE.as_str(), STREAM_CONTENT_TYPE), (TIMEOUT_HEADER, limit.as_str())];
    let request = request(Method::POST, START, None, &headers, whole(message_frame(&message)), of)?;
    let pool = Pool::default();
    let response = match timeout(CALL, pool.send(folder, request, Reuse::No)).await {
        Ok(sent) => sent.map_err(|failure| broken(&failure))?,
        Err(_) => return Err(fail(ErrorKind::Unavailable, operation, "the agent does not answer")),
    };
    let status = response.status();
    if status != StatusCode::OK {
        let body = response.into_body().collect(MAX_REFUSAL).await;
        let body = body.map_err(|cause| broken(&Failure::Broken(cause)))?.unwrap_or_default();
        return Ok(Err(RpcError::from_response(status.as_u16(), &body)));
    }
    let mut messages = Messages::of(response.into_body());
    let (mut last, mut said) = (VecDeque::new(), 0_usize);
    let ended = |status, last: &VecDeque<u8>| {
        let bytes: Vec<u8> = last.iter().copied().collect();
        Ok(Ok(Once { status, said: readable(String::from_utf8_lossy(&bytes).trim()) }))
    };
    loop {
        match messages.next().await {
            Next::Message(payload) => match decode_process_event(&payload) {
                Ok(ProcessEvent::Data { bytes, .. }) => {
                    said = said.saturating_add(bytes.len());
                    if said > MAX_SAID {
                        let why = format!("it says more than {} MiB", MAX_SAID >> 20);
                        return Err(fail(ErrorKind::LimitExceeded, operation, why));
                    }
                    last.extend(&bytes[bytes.len().saturating_sub(KEPT)..]);
                    last.drain(..last.len().saturating_sub(KEPT));
                }
                Ok(ProcessEvent::End(end)) => return ended(Some(status_of(&end)), &last),
                Ok(ProcessEvent::Start { .. } | ProcessEvent::Keepalive | ProcessEvent::Unknown) => {}
                Err(cause) => return Err(nonsense(of, &cause)),
            },
            Next::End(Some(error)) if error.code == Code::DeadlineExceeded => return ended(None, &last),
            Next::End(Some(error)) => return Ok(Err(error)),
            Next::End(None) => {
                return Err(nonsense(of, &"the stream ended before the process"));
            }
            Next::Lost(failure) => return Err(broken(&failure)),
            Next::Nonsense(why) => return Err(nonsense(of, &why)),
        }
    }
}
