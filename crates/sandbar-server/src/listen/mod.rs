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
use std::time::{Duration, Instant};

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

/// How often the log says that connections find no place.
const TELL_EVERY: Duration = Duration::from_secs(60);

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
        let (mut refused, mut told) = (0_u64, None::<Instant>);
        loop {
            let (stream, peer) = accept(&listener).await;
            // One that finds no place is closed at once: it is told nothing that takes time.
            let Some(place) = places.take(peer.ip()) else {
                refused += 1;
                if told.is_none_or(|at| at.elapsed() > TELL_EVERY) {
                    tracing::warn!(refused, peer = %peer.ip(), "connections are refused: there are too many, in all or of one address");
                    (told, refused) = (Some(Instant::now()), 0);
                }
                continue;
            };
            let shared = Arc::clone(&shared);
            let counted = shared.app.counts.connected();
            tasks.spawn(async move {
                connection(&shared, stream, peer).await;
                drop((place, counted));
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
