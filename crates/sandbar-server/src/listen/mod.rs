//! Connections: accepted, bounded, ended in good order.

mod accept;
mod body;
mod connection;
mod tls;

pub(crate) use body::timed;
pub(crate) use connection::Peer;
pub(crate) use tls::Tls;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use sandbar_core::Result;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::accept::{Places, accept};
use self::connection::{Shared, connection};
use crate::app::App;

/// How long requests under way may go on after a stop was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// Answers connections until `stop` is done. Those under way then end in good order; what does not in [`GRACE`] is broken off.
pub(crate) async fn serve(
    app: Arc<App>,
    control: Router,
    listener: TcpListener,
    tls: Option<Tls>,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let shared = Arc::new(Shared {
        app,
        control,
        tls,
        ending: CancellationToken::new(),
        broken: CancellationToken::new(),
    });
    let tasks = TaskTracker::new();
    let places = Places::new();
    let sweeping = shared.app.guests.sweep();
    let accepting = async {
        loop {
            let (stream, peer) = accept(&listener).await;
            // One that finds no place is closed at once: it is told nothing that takes time.
            let Some(place) = places.take(peer.ip()) else { continue };
            let shared = Arc::clone(&shared);
            tasks.spawn(async move {
                connection(&shared, stream, peer).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = stop => {}
        () = accepting => {}
        () = sweeping => {}
    }
    drop(listener);
    tasks.close();
    shared.ending.cancel();
    if tokio::time::timeout(GRACE, tasks.wait()).await.is_err() {
        shared.broken.cancel();
        tasks.wait().await;
    }
    shared.app.guests.close().await;
    Ok(())
}
