use std::future::Future;

use sandbar::{Error, ErrorKind, Signal};

use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::signals::Signals;

/// Does `work` unless somebody asks us to end; then it is dropped where it stands.
pub(super) async fn or_interrupt<T, E>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T>
where
    Failure: From<E>,
{
    tokio::select! {
        biased;
        signal = signals.next() => Err(interrupted(signal)),
        done = work => done.map_err(Failure::from),
    }
}

pub(super) fn interrupted(signal: Signal) -> Failure {
    let error = Error::new(ErrorKind::Unexpected, "wait", format!("interrupted by signal {}", signal.0));
    Failure::new(ExitStatus::Interrupted(signal.0), error)
}
