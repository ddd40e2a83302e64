use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use super::body::Lost;
use super::serve::{Reply, Serving};
use super::{Answer, Recorded};

/// A server that answers what it is told to and keeps what it was asked.
pub struct Scripted {
    serving: Serving,
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<Recorded>>,
    otherwise: Box<dyn Fn(&Recorded) -> Answer + Send + Sync>,
}

impl Scripted {
    /// One that answers from a queue ([`Scripted::push`]), and with 500 when that is empty.
    pub async fn start() -> Self {
        Self::answering(|request| {
            let asked = format!("nothing was scripted for {} {}", request.method, request.uri);
            Answer::json(500, &serde_json::json!({ "code": 500, "message": asked }))
        })
        .await
    }

    /// One that answers from a queue, and when that is empty by this.
    pub async fn answering(answer: impl Fn(&Recorded) -> Answer + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            requests: Mutex::default(),
            otherwise: Box::new(answer),
        });
        let state = shared.clone();
        let serving = Serving::start(move |request, _| reply(state.clone(), request)).await;
        Self { serving, shared }
    }

    /// Answers this after what is in the queue.
    pub fn push(&self, answer: Answer) {
        lock(&self.shared.queue).push_back(answer);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.serving.address
    }

    /// An address of it, for a path that begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.serving.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).clone()
    }

    /// How many requests of this method there were whose path is like `pattern`, in which `*` is anything.
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        let rule = super::Rule::on(method, pattern);
        lock(&self.shared.requests)
            .iter()
            .filter(|request| rule.is_for(&request.method, request.path()))
            .count()
    }

    /// How many connections there are.
    pub fn open_connections(&self) -> usize {
        self.serving.open()
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("serving", &self.serving).finish_non_exhaustive()
    }
}

async fn reply(shared: Arc<Shared>, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let request = Recorded { method: head.method, uri: head.uri, headers: head.headers, body };
    let queued = lock(&shared.queue).pop_front();
    let answer = queued.unwrap_or_else(|| (shared.otherwise)(&request));
    lock(&shared.requests).push(request);
    Ok(whole(answer))
}

/// An answer on its way out.
pub(crate) fn whole(
    answer: Answer,
) -> Response<http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, Lost>> {
    let mut response = Response::new(Full::new(answer.body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
