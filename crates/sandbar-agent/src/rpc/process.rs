use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use http::header::HeaderMap;
use hyper::body::Incoming;
use sandbar_wire::envd::{
    Code, ConnectRequest, Empty, ListResponse, ProcessEvent, ProcessTable, RpcError, SelectRequest,
    SendInputRequest, SendSignalRequest, StartRequest, StreamInput, UpdateRequest, decode_stream_input,
    end_frame, message_frame,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::call::{Messages, answer, deadline, finished, frames, pace, single, stream, unary};
use crate::http::{Request, Response, basic_user};
use crate::processes::{Found, FrameBody, Process, Queue, list_all, signal_any, start};
use crate::state::State;

pub(super) async fn dispatch(state: &Rc<State>, method: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let limit = match deadline(&headers) {
        Ok(limit) => limit,
        Err(error) => return answer::<()>(Err(error)),
    };
    match method {
        "Start" => stream(start_stream(state, &headers, body, limit).await),
        "Connect" => stream(connect(state, &headers, body, limit).await),
        "StreamInput" => stream_input(within(limit, stream_in(state, body)).await),
        "List" => {
            answer(unary::<Empty>(body).await.map(|_| ListResponse { processes: state.registry.list() }))
        }
        "ListAll" => answer(list_everything(state, body).await),
        "SignalAny" => {
            answer(unary(body).await.and_then(|request| signal_any(state, &request)).map(|()| Empty {}))
        }
        "SendInput" => answer(within(limit, send_input(state, body)).await),
        "SendSignal" => answer(send_signal(state, body).await),
        "CloseStdin" => answer(within(limit, close_stdin(state, body)).await),
        "Update" => answer(update(state, body).await),
        _ => answer::<()>(Err(RpcError::new(Code::Unimplemented, format!("no method `{method}`")))),
    }
}

/// Bounds a call by the limit that its request set.
async fn within<T>(
    limit: Option<Instant>,
    call: impl Future<Output = Result<T, RpcError>>,
) -> Result<T, RpcError> {
    match limit {
        None => call.await,
        Some(limit) => timeout_at(limit, call)
            .await
            .unwrap_or_else(|_| Err(RpcError::new(Code::DeadlineExceeded, "the call's time limit passed"))),
    }
}

fn keepalive() -> Bytes {
    message_frame(&ProcessEvent::Keepalive)
}

async fn start_stream(
    state: &Rc<State>,
    headers: &HeaderMap,
    body: Incoming,
    limit: Option<Instant>,
) -> Result<FrameBody, RpcError> {
    let user = basic_user(headers)?;
    let request: StartRequest = single(body).await?;
    let user = state.user(user.as_deref())?;
    let task = tokio::task::spawn_local(start(state.clone(), request, user, limit));
    let queue =
        task.await.map_err(|error| RpcError::new(Code::Internal, format!("start a process: {error}")))??;
    Ok(FrameBody::new(queue, pace(headers, keepalive(), None)))
}

async fn connect(
    state: &Rc<State>,
    headers: &HeaderMap,
    body: Incoming,
    limit: Option<Instant>,
) -> Result<FrameBody, RpcError> {
    let request: ConnectRequest = single(body).await?;
    let pace = pace(headers, keepalive(), limit);
    match state.registry.find(&request.process)? {
        Found::Running(process) => Ok(FrameBody::new(process.subscribe(), pace)),
        Found::Ended(pid, end) => {
            let queue = Queue::new(Rc::new(Notify::new()));
            queue.push(message_frame(&ProcessEvent::Start { pid }));
            queue.push(message_frame(&ProcessEvent::End(end)));
            Ok(finished(queue, pace))
        }
    }
}

async fn list_everything(state: &State, body: Incoming) -> Result<ProcessTable, RpcError> {
    let Empty {} = unary(body).await?;
    list_all(state).await
}

async fn send_input(state: &State, body: Incoming) -> Result<Empty, RpcError> {
    let request: SendInputRequest = unary(body).await?;
    state.registry.running(&request.process)?.input(request.input).await?;
    Ok(Empty {})
}

async fn stream_in(state: &State, body: Incoming) -> Result<(), RpcError> {
    let mut messages = Messages::new(body);
    let mut process: Option<Rc<Process>> = None;
    while let Some(message) = messages.next().await? {
        let message = decode_stream_input(&message)
            .map_err(|error| RpcError::new(Code::InvalidArgument, format!("read the message: {error}")))?;
        match (message, &process) {
            (StreamInput::Start(select), None) => process = Some(state.registry.running(&select.process)?),
            (StreamInput::Start(_), Some(_)) => {
                return Err(RpcError::new(Code::InvalidArgument, "`start` came twice"));
            }
            (StreamInput::Data(input), Some(process)) => process.input(input).await?,
            (StreamInput::Data(_), None) => {
                return Err(RpcError::new(Code::InvalidArgument, "the first message is not `start`"));
            }
            (StreamInput::Keepalive | StreamInput::Unknown, _) => {}
        }
    }
    Ok(())
}

fn stream_input(result: Result<(), RpcError>) -> Response {
    frames(match result {
        Ok(()) => Bytes::from([message_frame(&Empty {}), end_frame(None)].concat()).into(),
        Err(error) => end_frame(Some(&error)).into(),
    })
}

async fn send_signal(state: &State, body: Incoming) -> Result<Empty, RpcError> {
    let request: SendSignalRequest = unary(body).await?;
    state.registry.running(&request.process)?.signal(request.signal)?;
    Ok(Empty {})
}

async fn close_stdin(state: &State, body: Incoming) -> Result<Empty, RpcError> {
    let request: SelectRequest = unary(body).await?;
    state.registry.running(&request.process)?.close_stdin().await?;
    Ok(Empty {})
}

async fn update(state: &State, body: Incoming) -> Result<Empty, RpcError> {
    let request: UpdateRequest = unary(body).await?;
    state.registry.running(&request.process)?.update(request.pty)?;
    Ok(Empty {})
}
