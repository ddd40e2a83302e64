use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sandbar_engine::network::NetworkSockets;
use sandbar_engine::process::{OomScore, Reach, release_free_memory};
use sandbar_wire::envd::{HttpError, Signal};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::timeout;

use crate::http::{Request, Response, empty, error, token_allows, with_cors};
use crate::log::log;
use crate::quiet::Quiet;
use crate::state::State;
use crate::{AgentConfig, archive, control, files, host, main_command, rpc, sudo, trust};

/// Most connections at the same time; further ones wait in the listener. An SDK opens up to 200.
const MAX_CONNECTIONS: usize = 2048;
/// How long a client may take to send the head of a request.
const HEAD_LIMIT: Duration = Duration::from_secs(60);
/// Pause after a failed accept, which is a lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Longest sleep until the clock is looked at again: a deadline is a moment of the wall clock, which may be set, and
/// which goes on while a machine or a sandbox sleeps.
const CLOCK_CHECK: Duration = Duration::from_secs(10);
/// How long the agent does nothing before it gives free memory back.
const IDLE_PAUSE: Duration = Duration::from_secs(2);

/// The sockets that were made before the sandbox existed.
#[derive(Debug)]
pub struct Listeners {
    /// Of `agent.sock`: a Unix stream listener for envd's protocol.
    pub agent: OwnedFd,
    /// Of `ctl.sock`: a Unix listener of sequenced packets for the control protocol. Absent where nobody controls.
    pub control: Option<OwnedFd>,
    /// The sandbox's side of its network, which is held for as long as the agent lives, so that no program can take its
    /// ports while nobody serves them outside. Absent where there is no gateway.
    pub network: Option<NetworkSockets>,
}

/// Why [`serve`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The deadline passed.
    Deadline,
    /// The host side asked for it.
    Shutdown,
}

/// Serves until the deadline passes or the host side asks for the end. Whatever was started is ended before it
/// returns; as PID 1 returning and exiting ends everything else too.
pub fn serve(config: AgentConfig, listeners: Listeners) -> io::Result<Outcome> {
    serve_with(config, listeners, None)
}

/// The same, where commands are to be victims of a lack of memory before this process.
pub(crate) fn serve_with(
    config: AgentConfig,
    listeners: Listeners,
    oom_score: Option<OomScore>,
) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let outcome = LocalSet::new().block_on(&runtime, run(config, listeners, oom_score));
    runtime.shutdown_background();
    outcome
}

async fn run(
    mut config: AgentConfig,
    listeners: Listeners,
    oom_score: Option<OomScore>,
) -> io::Result<Outcome> {
    if let Some(authority) = &config.authority {
        // Before anything runs. What the sandbox was given as environment stays.
        for (name, value) in trust::install(&config.etc, authority)? {
            config.env.entry(name).or_insert(value);
        }
    } else if let Err(error) = trust::remove(&config.etc) {
        // Its files may be from a sandbox that had one.
        log(format_args!("{error}"));
    }
    let state = State::new(config, oom_score)?;
    let listener = StdListener::from(listeners.agent);
    listener.set_nonblocking(true)?;
    let listener = Rc::new(UnixListener::from_std(listener)?);
    let network = listeners.network.map(Rc::new);
    if let Some(socket) = listeners.control {
        tokio::task::spawn_local(control::serve(
            state.clone(),
            listener.clone(),
            control::Socket::new(socket)?,
            network.clone(),
        ));
    }
    tokio::task::spawn_local(accept(state.clone(), listener));
    tokio::task::spawn_local(sudo::serve(state.clone()));
    if let Some(main) = &state.main {
        tokio::task::spawn_local(main_command::supervise(state.clone(), main.clone()));
    }
    let outcome = tokio::select! {
        () = deadline(&state) => Outcome::Deadline,
        () = state.shutdown.notified() => Outcome::Shutdown,
    };
    for tree in state.registry.trees() {
        let _ = tree.signal(Signal::KILL.number(), Reach::Everything);
    }
    Ok(outcome)
}

/// Returns once the deadline, whatever it is by then, has passed.
async fn deadline(state: &State) {
    loop {
        let changed = state.deadline_changed.notified();
        let Some(deadline) = state.deadline.get() else {
            changed.await;
            continue;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let left = u128::from(deadline).saturating_sub(now);
        if left == 0 {
            return;
        }
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX)).min(CLOCK_CHECK);
        let _ = timeout(left, changed).await;
    }
}

async fn accept(state: Rc<State>, listener: Rc<UnixListener>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        state.quiet.over().await;
        let accepted = tokio::select! {
            biased;
            () = state.quiet.wanted() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                log(format_args!("accept: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (state, all) = (state.clone(), places.clone());
        let counted = Quiet::count(&state);
        tokio::task::spawn_local(async move {
            let is_new = Cell::new(true);
            let service = service_fn(|request| {
                is_new.set(false);
                answer(state.clone(), request)
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .serve_connection(TokioIo::new(stream), service);
            let mut connection = std::pin::pin!(connection);
            // A client that breaks the protocol or leaves is its own problem.
            tokio::select! {
                _ = connection.as_mut() => {}
                () = state.quiet.wanted() => {
                    // One that said nothing so far is about to, and ends with its answer.
                    if !is_new.get() {
                        connection.as_mut().graceful_shutdown();
                    }
                    let _ = connection.await;
                }
            }
            drop((place, counted));
            let is_idle = || all.available_permits() >= MAX_CONNECTIONS - 1;
            if is_idle() && !state.trims.replace(true) {
                tokio::time::sleep(IDLE_PAUSE).await;
                state.trims.set(false);
                if is_idle() {
                    release_free_memory();
                }
            }
        });
    }
}

async fn answer(state: Rc<State>, request: Request) -> Result<Response, Infallible> {
    if request.method() == http::Method::OPTIONS {
        return Ok(with_cors(empty(204), Some(request.headers())));
    }
    let mut response = route(&state, request).await.unwrap_or_else(|problem| error(&problem));
    if state.quiet.is_begun() {
        response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    Ok(with_cors(response, None))
}

async fn route(state: &Rc<State>, request: Request) -> Result<Response, HttpError> {
    let path = request.uri().path();
    let method = request.method().as_str();
    // These check by themselves, or say nothing worth a token.
    let is_exempt =
        matches!((method, path), ("GET" | "HEAD", "/health" | "/files") | ("POST", "/files" | "/init"));
    if !is_exempt {
        let token = state.defaults.borrow().token.clone();
        if let Some(token) = token {
            token_allows(request.headers(), &token).unwrap_or_else(|| {
                Err(HttpError::new(401, "unauthorized access, the request carries no access token"))
            })?;
        }
    }
    match (method, path) {
        ("GET" | "HEAD", "/health") => Ok(host::health()),
        ("GET" | "HEAD", "/files") => {
            files::download(state, request.method(), request.uri().query(), request.headers()).await
        }
        ("POST", "/files") => {
            let (parts, body) = request.into_parts();
            files::upload(state, parts.uri.query(), &parts.headers, body).await
        }
        ("POST", "/files/compose") => {
            let (parts, body) = request.into_parts();
            files::compose(state, &parts.headers, body).await
        }
        ("GET", "/sandbar/archive") => archive::export(state, request.uri().query(), request.headers()).await,
        ("POST", "/sandbar/archive") => {
            let (parts, body) = request.into_parts();
            archive::import(state, parts.uri.query(), body).await
        }
        ("GET", "/metrics") => host::metrics(state),
        ("GET", "/envs") => Ok(host::envs(state)),
        ("POST", "/init") => {
            let (parts, body) = request.into_parts();
            host::init(state, &parts.headers, body).await
        }
        (
            _,
            "/health" | "/files" | "/files/compose" | "/sandbar/archive" | "/metrics" | "/envs" | "/init",
        ) => Err(HttpError::new(405, format!("method {method} is not allowed on `{path}`"))),
        _ => {
            let missing = format!("no such endpoint: `{path}`");
            match rpc::dispatch(state, request).await {
                Some(response) => Ok(response),
                None => Err(HttpError::new(404, missing)),
            }
        }
    }
}
