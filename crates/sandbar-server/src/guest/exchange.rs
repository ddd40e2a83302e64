use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use sandbar_core::{Error, ErrorKind, GuestStream};
use sandbar_wire::envd::{KEEPALIVE_DEFAULT_SECS, KEEPALIVE_HEADER};
use tokio_util::compat::FuturesAsyncReadCompatExt as _;
use tokio_util::sync::CancellationToken;

use super::admit::{INTERPRETER_PORT, Waking};
use super::body::{Answer, Return};
use super::pool::Pool;
use super::problem::Problem;
use super::resident::{Flight, Resident, Seen};
use super::wake::ensure_running;
use super::{headers, tunnel};
use crate::app::App;

/// How long a connection into a sandbox may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long an answer may take until its head is there: E2B's proxy gives up on silence at about this time.
pub(crate) const SILENCE: Duration = Duration::from_secs(620);
/// What a stream may be late with a sign of life beside the pause that was agreed upon: a busy machine.
const LATE: Duration = Duration::from_secs(10);
/// How often a sandbox is met asleep that was seen running a moment before, until the client is to come again.
const ROUNDS: usize = 3;
/// How often a request is sent on connections that turn out to be closed.
const SENDS: usize = 8;
/// Pauses between calls to a port that does not answer yet: a server that was just started is about to listen.
const KNOCKS: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];
/// Between further calls to the code interpreter, which a sandbox of its template starts with, and how many they are: ten seconds' worth.
const INTERPRETER_KNOCK: Duration = Duration::from_millis(250);
const INTERPRETER_KNOCKS: usize = 40;
/// A request that met a sandbox falling asleep is served by it once it is woken; one that waited for longer ends with it.
const RACE: Duration = Duration::from_secs(1);
/// Fields that a head from inside may have.
const MAX_HEADERS: usize = 256;

/// Where in a sandbox a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// To the guest's own API.
    Agent,
    /// To what listens on a port.
    Port(u16),
}

/// A connection with what it belongs to.
struct Way {
    sender: SendRequest<Body>,
    pool: Return,
    is_used: bool,
    awake: CancellationToken,
}

/// Passes a request on and answers what comes back.
pub(super) async fn exchange(
    app: &Arc<App>,
    resident: &Arc<Resident>,
    lane: Lane,
    waking: Waking,
    mut request: Request<Body>,
) -> Result<Response<Body>, Problem> {
    let id = resident.id.as_str();
    let flight = resident.flight(&app.guests);
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let upgrade = headers::upgrade(&parts);
    let silence = silence_of(lane, &parts);
    headers::inward(&mut parts, resident, lane, upgrade.as_ref());
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    parts.uri = target.parse().map_err(|_| Problem::bad_request(id, "the request has no path"))?;
    // Nothing is lost by asking again for what changes nothing.
    let again = (body.is_end_stream()
        && upgrade.is_none()
        && matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS))
    .then(|| parts.clone());
    let mut request = Request::from_parts(parts, body);
    let mut can_repeat = again.is_some();
    for _ in 0..SENDS {
        let mut way = way(app, resident, lane, waking).await?;
        let sent = Instant::now();
        let head = way.sender.try_send_request(request);
        let mut head = std::pin::pin!(head);
        let result = loop {
            tokio::select! {
                biased;
                result = head.as_mut() => break result,
                () = way.awake.cancelled() => {
                    if !resident.marks.auto_resume || sent.elapsed() > RACE {
                        return Err(Problem::no_sandbox(id));
                    }
                    ensure_running(app, resident, waking).await?;
                    way.awake = resident.awake();
                }
                () = tokio::time::sleep(SILENCE) => return Err(Problem::silent(id)),
            }
        };
        let mut failure = match result {
            Ok(response) => return Ok(answer(app, resident, response, way, flight, client, silence)),
            Err(failure) => failure,
        };
        match failure.take_message() {
            // Not a byte of it went out.
            Some(unsent) => request = unsent,
            None => match &again {
                Some(parts) if can_repeat && way.is_used => {
                    can_repeat = false;
                    request = Request::from_parts(parts.clone(), Body::empty());
                }
                _ => return Err(lost(app, resident, &failure.into_error()).await),
            },
        }
    }
    Err(Problem::broken(id))
}

/// How long nothing may come of an answer. A stream of the guest's gives signs of life, as often as its client wants: without two of them it is dead, which
/// clients do not notice by themselves.
fn silence_of(lane: Lane, parts: &Parts) -> Duration {
    const STREAMS: [&str; 3] =
        ["/process.Process/Start", "/process.Process/Connect", "/filesystem.Filesystem/WatchDir"];
    if lane != Lane::Agent || !STREAMS.contains(&parts.uri.path()) {
        return SILENCE;
    }
    let asked = parts.headers.get(KEEPALIVE_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
    let pause = asked.filter(|seconds| *seconds > 0).unwrap_or(KEEPALIVE_DEFAULT_SECS);
    Duration::from_secs(pause).saturating_mul(2).saturating_add(LATE).min(SILENCE)
}

/// A connection into the sandbox, which runs.
async fn way(app: &Arc<App>, resident: &Arc<Resident>, lane: Lane, waking: Waking) -> Result<Way, Problem> {
    let id = resident.id.as_str();
    for _ in 0..ROUNDS {
        ensure_running(app, resident, waking).await?;
        let awake = resident.awake();
        let pool = match lane {
            Lane::Agent => Return::Agent(Arc::clone(resident)),
            Lane::Port(port) => Return::Port(resident.port(port)),
        };
        if let Some(sender) = pool.get(Pool::take) {
            return Ok(Way { sender, pool, is_used: true, awake });
        }
        let Ok(connected) = tokio::time::timeout(CONNECT_LIMIT, dial(resident, lane)).await else {
            return Err(Problem::silent(id));
        };
        match connected {
            Ok(stream) => {
                let sender = handshake(app, stream).await.map_err(|error| {
                    tracing::debug!(%error, sandbox = id, "a connection into a sandbox did not begin");
                    Problem::broken(id)
                })?;
                return Ok(Way { sender, pool, is_used: false, awake });
            }
            // It fell asleep, or ended: the next look says which.
            Err(Refusal::Error(error))
                if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) =>
            {
                resident.end();
            }
            Err(Refusal::Error(error)) => return Err(Problem::of(id, &error)),
            Err(Refusal::Closed(port)) => match resident.look().await {
                Ok(Seen::Running) => return Err(Problem::closed_port(id, port)),
                Ok(_) => {}
                Err(error) => return Err(Problem::of(id, &error)),
            },
            Err(Refusal::Missing(what)) => return Err(Problem::not_implemented(id, what)),
        }
    }
    Err(Problem::in_transition(id))
}

enum Refusal {
    /// The backend failed.
    Error(Error),
    /// Nothing listens on the port.
    Closed(u16),
    /// The backend has no such way.
    Missing(String),
}

async fn dial(resident: &Resident, lane: Lane) -> Result<GuestStream, Refusal> {
    let missing = |part: &str| {
        let reason = resident.sandbox.missing_reason(part);
        let reason = reason.unwrap_or_else(|| "the backend has no such part".to_owned());
        Refusal::Missing(format!("This server can't pass requests into the sandbox: {reason}"))
    };
    match lane {
        Lane::Agent => {
            let guest = resident.sandbox.guest().ok_or_else(|| missing("guest"))?;
            guest.connect().await.map_err(Refusal::Error)
        }
        Lane::Port(port) => {
            let ports = resident.sandbox.ports().ok_or_else(|| missing("ports"))?;
            let more = if port == INTERPRETER_PORT { INTERPRETER_KNOCKS } else { 0 };
            let mut knocks = KNOCKS.into_iter().chain(std::iter::repeat_n(INTERPRETER_KNOCK, more));
            loop {
                match ports.dial(port).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) if error.kind() != ErrorKind::Unavailable => {
                        return Err(Refusal::Error(error));
                    }
                    Err(error) => match knocks.next() {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None if error.retry() == sandbar_core::Retry::Safe => {
                            return Err(Refusal::Closed(port));
                        }
                        None => return Err(Refusal::Error(error)),
                    },
                }
            }
        }
    }
}

async fn handshake(app: &App, stream: GuestStream) -> hyper::Result<SendRequest<Body>> {
    let io = TokioIo::new(stream.compat());
    let (sender, connection) = http1::Builder::new().max_headers(MAX_HEADERS).handshake(io).await?;
    app.guests.spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection into a sandbox ended");
        }
    });
    Ok(sender)
}

/// What a connection that broke means.
async fn lost(app: &Arc<App>, resident: &Resident, error: &hyper::Error) -> Problem {
    let id = resident.id.as_str();
    tracing::debug!(%error, sandbox = id, "a request into a sandbox broke");
    if error.is_parse() {
        return Problem::broken(id);
    }
    // It was the client's body that broke off, or did not go on.
    if error.is_user() {
        return if is_timeout(error) { Problem::slow_body(id) } else { Problem::bad_request(id, BROKEN_OFF) };
    }
    match resident.look().await {
        Ok(Seen::Running | Seen::InTransition) => Problem::broken(id),
        Ok(Seen::Sleeping(_)) => Problem::no_sandbox(id),
        Ok(Seen::Gone) => {
            app.guests.forget(id);
            Problem::no_sandbox(id)
        }
        Err(error) => Problem::of(id, &error),
    }
}

/// What a body says that ended before it was whole.
const BROKEN_OFF: &str = "The body of the request broke off";

fn is_timeout(error: &hyper::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            return error.kind() == std::io::ErrorKind::TimedOut;
        }
        cause = error.source();
    }
    false
}

/// What the client gets: as it comes, and broken off where it breaks.
fn answer(
    app: &App,
    resident: &Resident,
    mut response: Response<Incoming>,
    way: Way,
    flight: Flight,
    client: hyper::upgrade::OnUpgrade,
    silence: Duration,
) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let guest = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        headers::outward(&mut parts);
        let id = resident.id.clone();
        app.guests.spawn(async move {
            let _flight = flight;
            let ended = tunnel::pass(client, guest, way.awake).await;
            tracing::debug!(sandbox = %id, ?ended, "an upgraded connection ended");
        });
        return Response::from_parts(parts, Body::empty());
    }
    let (mut parts, body) = response.into_parts();
    headers::outward(&mut parts);
    let answer = Answer::new(body, (way.sender, way.pool), way.awake, flight, silence, app.guests.tracker());
    Response::from_parts(parts, Body::new(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_dead_without_two_signs_of_life_and_anything_else_may_take_long() {
        let silence = |lane, path: &str, keepalive: &str| {
            let request = Request::post(path).header(KEEPALIVE_HEADER, keepalive).body(()).unwrap();
            silence_of(lane, &request.into_parts().0).as_secs()
        };
        let start = "/process.Process/Start";
        assert_eq!(silence(Lane::Agent, start, "50"), 110);
        assert_eq!(silence(Lane::Agent, "/filesystem.Filesystem/WatchDir", "1"), 12);
        for odd in ["0", "-1", "soon", ""] {
            assert_eq!(silence(Lane::Agent, start, odd), 2 * KEEPALIVE_DEFAULT_SECS + 10, "{odd}");
        }
        assert_eq!(silence(Lane::Agent, start, "99999999999999"), SILENCE.as_secs());
        assert_eq!(silence(Lane::Agent, "/files", "1"), SILENCE.as_secs());
        assert_eq!(silence(Lane::Port(80), start, "1"), SILENCE.as_secs());
    }
}
