use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::BytesMut;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::watch;

use super::body::{Lost, Passing, Shape};
use super::line::Control;
use super::scripted::whole;
use super::serve::{Reply, Serving};
use super::upstream::{Connection, Onward, pass};
use super::{Answer, Fault, Rule};

/// Stands between a client and a real server on loopback, and lets faults happen by rule.
#[derive(Debug)]
pub struct FaultProxy {
    serving: Serving,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    rules: Mutex<Vec<Entry>>,
    requests: Mutex<Vec<(Method, String)>>,
}

#[derive(Debug)]
struct Entry {
    rule: Rule,
    fault: Fault,
    matched: usize,
    active: Active,
}

/// A fault that was injected, to be watched and released.
#[derive(Debug)]
pub struct Injected {
    hits: watch::Receiver<usize>,
    gate: watch::Sender<bool>,
}

/// The other side of an [`Injected`].
#[derive(Clone, Debug)]
pub(crate) struct Active {
    hits: watch::Sender<usize>,
    gate: watch::Receiver<bool>,
}

impl FaultProxy {
    /// One in front of the server at `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let shared = Arc::new(Shared { upstream, rules: Mutex::default(), requests: Mutex::default() });
        let state = shared.clone();
        let serving = Serving::start(move |request, control| reply(state.clone(), request, control)).await;
        Self { serving, shared }
    }

    /// The address that a client is given instead of the server's: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.serving.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address
    }

    /// Lets `fault` happen where `rule` holds. Of several rules that hold for a request, the first one does. Dropping what is handed out releases
    /// nothing and ends nothing.
    pub fn inject(&self, rule: Rule, fault: Fault) -> Injected {
        let (hits, seen) = watch::channel(0);
        let (gate, open) = watch::channel(false);
        let active = Active { hits, gate: open };
        lock(&self.shared.rules).push(Entry { rule, fault, matched: 0, active });
        Injected { hits: seen, gate }
    }

    /// Forgets all rules, and what was counted. What is being held stays held.
    pub fn clear(&self) {
        lock(&self.shared.rules).clear();
        lock(&self.shared.requests).clear();
    }

    /// How many requests came of this method whose path is like `pattern`, in which `*` is anything.
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        let rule = Rule::on(method, pattern);
        lock(&self.shared.requests).iter().filter(|(method, path)| rule.is_for(method, path)).count()
    }

    /// How many connections of clients there are.
    pub fn open_connections(&self) -> usize {
        self.serving.open()
    }

    /// Waits until there are so many connections of clients.
    pub async fn until_open(&self, count: usize) {
        self.serving.until_open(count).await;
    }
}

impl Injected {
    /// How often it happened: where a fault lies within a body, only if the body came as far.
    pub fn hits(&self) -> usize {
        *self.hits.borrow()
    }

    /// Waits until it happened so often.
    ///
    /// # Panics
    ///
    /// If the proxy ended before.
    pub async fn until_hit(&self, times: usize) {
        self.hits.clone().wait_for(|hits| *hits >= times).await.expect("the proxy is still there");
    }

    /// Lets go of what is being held, now and from now on.
    pub fn release(&self) {
        self.gate.send_replace(true);
    }
}

impl Active {
    pub(crate) fn hit(&self) {
        self.hits.send_modify(|hits| *hits += 1);
    }

    /// Waits until it is released; if nobody can do that any more, for good.
    pub(crate) async fn released(&self) {
        if self.gate.clone().wait_for(|open| *open).await.is_err() {
            pending::<()>().await;
        }
    }
}

impl Shared {
    /// What happens to a request, which is counted.
    fn fault_of(&self, method: &Method, path: &str) -> Option<(Fault, Active)> {
        lock(&self.requests).push((method.clone(), path.to_owned()));
        let mut found = None;
        for entry in lock(&self.rules).iter_mut().filter(|entry| entry.rule.is_for(method, path)) {
            entry.matched += 1;
            if found.is_none() && entry.rule.holds(entry.matched) {
                found = Some((entry.fault.clone(), entry.active.clone()));
            }
        }
        found
    }
}

async fn reply(shared: Arc<Shared>, request: Request<Incoming>, control: Control) -> Reply {
    let fault = shared.fault_of(request.method(), request.uri().path());
    let (head, body) = request.into_parts();
    let on = |body: Onward| pass(shared.upstream, Request::from_parts(head, body));
    let Some((fault, active)) = fault else {
        let (answer, connection) = on(Onward::whole(body)).await?;
        return Ok(plain(answer, connection));
    };
    let cut = |answer, connection, shape| shaped(answer, connection, shape, control.clone(), active.clone());
    match fault {
        Fault::Answer(answer) => {
            // A client that is still sending would take the answer for a reset.
            drain(body).await?;
            active.hit();
            Ok(whole(answer))
        }
        Fault::AnswerAfter(answer) => {
            on(Onward::whole(body)).await?;
            active.hit();
            Ok(whole(answer))
        }
        Fault::Refuse => {
            active.hit();
            control.reset();
            Err(Lost)
        }
        Fault::Lose => {
            on(Onward::whole(body)).await?;
            active.hit();
            control.reset();
            Err(Lost)
        }
        Fault::Stall => {
            active.hit();
            active.released().await;
            let (answer, connection) = on(Onward::whole(body)).await?;
            Ok(plain(answer, connection))
        }
        Fault::StallAfter => {
            let (answer, connection) = on(Onward::whole(body)).await?;
            active.hit();
            active.released().await;
            Ok(plain(answer, connection))
        }
        Fault::ResetRequest(bytes) => {
            let is_cut = Arc::new(AtomicBool::new(false));
            let passed = on(Onward::cut_at(body, bytes, is_cut.clone())).await;
            if is_cut.load(Ordering::SeqCst) {
                active.hit();
                control.reset();
                return Err(Lost);
            }
            let (answer, connection) = passed?;
            Ok(plain(answer, connection))
        }
        Fault::Body(place, then) => {
            let (answer, connection) = on(Onward::whole(body)).await?;
            Ok(cut(answer, connection, Shape::Cut(place, then)))
        }
        Fault::Split(piece) => {
            let (answer, connection) = on(Onward::whole(body)).await?;
            Ok(cut(answer, connection, Shape::Pieces(piece, None)))
        }
        Fault::Drip(piece, pause) => {
            let (answer, connection) = on(Onward::whole(body)).await?;
            Ok(cut(answer, connection, Shape::Pieces(piece, Some(pause))))
        }
        Fault::Rewrite(change) => {
            let (answer, _connection) = on(Onward::whole(body)).await?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
            active.hit();
            let mut headers = head.headers;
            unframe(&mut headers);
            Ok(whole(change(Answer { status: head.status, headers, body })))
        }
    }
}

/// An answer as the server gave it.
fn plain(
    answer: Response<Incoming>,
    connection: Connection,
) -> Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Lost>> {
    answer.map(|body| {
        body.map_err(move |_| {
            // It ends with the body.
            let _held = &connection;
            Lost
        })
        .boxed_unsync()
    })
}

/// An answer whose body is cut or held: how long it is going to be can't be told in advance then.
fn shaped(
    mut answer: Response<Incoming>,
    connection: Connection,
    shape: Shape,
    control: Control,
    active: Active,
) -> Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Lost>> {
    unframe(answer.headers_mut());
    answer.map(|from| {
        let (held, passed, has_ended) = (BytesMut::new(), 0, false);
        Passing { from, connection, control, active, shape, held, passed, has_ended }.boxed()
    })
}

fn unframe(headers: &mut http::HeaderMap) {
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
}

async fn drain(mut body: Incoming) -> Result<(), Lost> {
    while let Some(frame) = body.frame().await {
        frame.map_err(|_| Lost)?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
