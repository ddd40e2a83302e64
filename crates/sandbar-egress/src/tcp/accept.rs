use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::serve::serve;
use crate::state::State;

/// Pause after a connection could not be accepted, as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves each connection. All of them end with this.
pub(crate) async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(open.spawn(serve(state.clone(), stream))),
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
}
