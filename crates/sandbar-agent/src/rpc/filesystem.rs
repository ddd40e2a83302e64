use std::rc::Rc;

use bytes::Bytes;
use http::header::HeaderMap;
use hyper::body::Incoming;
use sandbar_wire::envd::{
    Code, CreateWatcherResponse, Empty, EntryResponse, ListDirRequest, ListDirResponse, MoveRequest,
    PathRequest, RpcError, WatchDirEvent, WatchDirRequest, WatcherEvents, WatcherRequest, message_frame,
};

use super::call::{answer, deadline, pace, single, stream, unary};
use crate::blocking;
use crate::filesystem::{self, Context};
use crate::http::{Request, Response, basic_user};
use crate::paths;
use crate::processes::FrameBody;
use crate::state::State;
use crate::users::User;

pub(super) async fn dispatch(state: &Rc<State>, method: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    match method {
        "Stat" => answer(stat(state, headers, body).await),
        "MakeDir" => answer(make_dir(state, headers, body).await),
        "Move" => answer(rename(state, headers, body).await),
        "ListDir" => answer(list_dir(state, headers, body).await),
        "Remove" => answer(remove(state, headers, body).await),
        "WatchDir" => stream(watch_dir(state, headers, body).await),
        "CreateWatcher" => answer(create_watcher(state, headers, body).await),
        "GetWatcherEvents" => answer(watcher_events(state, body).await),
        "RemoveWatcher" => answer(remove_watcher(state, body).await),
        _ => answer::<()>(Err(RpcError::new(Code::Unimplemented, format!("no method `{method}`")))),
    }
}

fn caller(state: &State, headers: &HeaderMap) -> Result<User, RpcError> {
    state.user(basic_user(headers)?.as_deref())
}

fn context(state: &State, user: &User) -> Context {
    Context { etc: state.config.etc.clone(), owner: state.owner(user) }
}

fn resolve(state: &State, user: &User, path: &str, exact: Option<&Bytes>) -> std::path::PathBuf {
    let workdir = state.defaults.borrow().workdir.clone();
    paths::resolve(&paths::given(path, exact), user, workdir.as_deref())
}

/// Runs an operation off the serving thread.
async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
) -> Result<T, RpcError> {
    blocking::run(work).await?
}

async fn stat(state: &State, headers: &HeaderMap, body: Incoming) -> Result<EntryResponse, RpcError> {
    let request: PathRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    let context = context(state, &user);
    off(move || filesystem::stat(&context, &path).map(|entry| EntryResponse { entry })).await
}

async fn make_dir(state: &State, headers: &HeaderMap, body: Incoming) -> Result<EntryResponse, RpcError> {
    let request: PathRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    let context = context(state, &user);
    off(move || filesystem::make_dir(&context, &path).map(|entry| EntryResponse { entry })).await
}

async fn rename(state: &State, headers: &HeaderMap, body: Incoming) -> Result<EntryResponse, RpcError> {
    let request: MoveRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let source = resolve(state, &user, &request.source, request.source_b64.as_ref());
    let destination = resolve(state, &user, &request.destination, request.destination_b64.as_ref());
    let context = context(state, &user);
    off(move || filesystem::rename(&context, &source, &destination).map(|entry| EntryResponse { entry }))
        .await
}

async fn list_dir(state: &State, headers: &HeaderMap, body: Incoming) -> Result<ListDirResponse, RpcError> {
    let request: ListDirRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    let context = context(state, &user);
    let depth = request.depth.max(1);
    off(move || filesystem::list(&context, &path, depth).map(|entries| ListDirResponse { entries })).await
}

async fn remove(state: &State, headers: &HeaderMap, body: Incoming) -> Result<Empty, RpcError> {
    let request: PathRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    off(move || filesystem::remove(&path).map(|()| Empty {})).await
}

async fn watch_dir(state: &Rc<State>, headers: &HeaderMap, body: Incoming) -> Result<FrameBody, RpcError> {
    let request: WatchDirRequest = single(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    let pace = pace(headers, message_frame(&WatchDirEvent::Keepalive), deadline(headers)?);
    let context = context(state, &user);
    let (queue, task) = filesystem::watch_stream(context, path, &request).await?;
    Ok(FrameBody::new(queue, pace).on_drop(move || task.abort()))
}

async fn create_watcher(
    state: &Rc<State>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<CreateWatcherResponse, RpcError> {
    let request: WatchDirRequest = unary(body).await?;
    let user = caller(state, headers)?;
    let path = resolve(state, &user, &request.path, request.path_b64.as_ref());
    let watcher_id = state.watchers.create(context(state, &user), path, &request).await?;
    Ok(CreateWatcherResponse { watcher_id })
}

async fn watcher_events(state: &State, body: Incoming) -> Result<WatcherEvents, RpcError> {
    let request: WatcherRequest = unary(body).await?;
    state.watchers.take(&request.watcher_id).map(|events| WatcherEvents { events })
}

async fn remove_watcher(state: &State, body: Incoming) -> Result<Empty, RpcError> {
    let request: WatcherRequest = unary(body).await?;
    state.watchers.remove(&request.watcher_id).map(|()| Empty {})
}
