//! Accepting connections, for as long as somebody wants it.

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::body::Lost;
use super::line::{Control, Line};

/// What a connection is answered with. An error ends the connection without an answer.
pub(crate) type Reply = Result<Response<UnsyncBoxBody<Bytes, Lost>>, Lost>;

/// A server on loopback, which ends with this value.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) address: SocketAddr,
    open: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Serving {
    pub(crate) async fn start<F>(
        answer: impl Fn(Request<Incoming>, Control) -> F + Clone + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let (count, open) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    Some(_) = connections.join_next() => {
                        count.send_replace(connections.len());
                        continue;
                    }
                };
                let Ok((stream, _)) = accepted else { continue };
                let (line, control) = Line::new(stream);
                let answer = answer.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, control.clone()));
                    // How a connection ends is for the client to say.
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(line), service).await;
                });
                count.send_replace(connections.len());
            }
        });
        Self { address, open, task }
    }

    /// How many connections there are.
    pub(crate) fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Waits until there are as many connections.
    pub(crate) async fn until_open(&self, count: usize) {
        let mut open = self.open.clone();
        open.wait_for(|open| *open == count).await.expect("the server is still there");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.task.abort();
    }
}
