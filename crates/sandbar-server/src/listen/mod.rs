//! Connections: accepted, bounded, ended in good order.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use sandbar_core::Result;
use tokio::net::TcpListener;

use crate::app::App;
use crate::dispatch::dispatch;

/// How long requests under way may go on after a stop was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// Answers connections until `stop` is done.
pub(crate) async fn serve(
    app: Arc<App>,
    control: Router,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let mut stop = std::pin::pin!(stop);
    let graceful = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        let (app, control) = (Arc::clone(&app), control.clone());
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (app, control) = (Arc::clone(&app), control.clone());
            async move { Ok::<_, std::convert::Infallible>(dispatch(app, control, request.map(Body::new)).await) }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    Ok(())
}
