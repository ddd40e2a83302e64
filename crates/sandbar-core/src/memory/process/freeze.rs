use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Holds all processes of a sandbox still while it is closed.
#[derive(Clone, Debug, Default)]
pub(in crate::memory) struct Freezer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    frozen: bool,
    waiting: Vec<Waker>,
}

impl Freezer {
    pub(in crate::memory) fn freeze(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).frozen = true;
    }

    pub(in crate::memory) fn thaw(&self) {
        let waiting = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.frozen = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// `future`, which makes no step while the freezer is closed.
    pub(in crate::memory) fn guard<F: Future + Send>(&self, future: F) -> Guarded<F> {
        Guarded { freezer: self.clone(), future: Box::pin(future) }
    }
}

/// A future in a freezer.
#[derive(Debug)]
pub(in crate::memory) struct Guarded<F> {
    freezer: Freezer,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Guarded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut state = self.freezer.0.lock().unwrap_or_else(PoisonError::into_inner);
            if state.frozen {
                state.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        self.future.as_mut().poll(cx)
    }
}
