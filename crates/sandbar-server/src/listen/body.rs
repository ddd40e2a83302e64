use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// How much of a body that nobody wants is read all the same, in bytes, and for how long: a client that is answered while it sends loses the answer where
/// its connection is closed under it.
const UNWANTED_BYTES: u64 = 64 << 20;
const UNWANTED_TIME: Duration = Duration::from_secs(5);

/// A body whose sender may pause for `limit` at most. Where it is dropped before its end, `rest` gets what reads the rest, within bounds.
pub(crate) fn timed(
    body: Body,
    limit: Duration,
    rest: impl FnOnce(BoxFuture<'static, ()>) + Send + 'static,
) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Body::new(Timed { body, limit, silence: None, is_over: false, rest: Mutex::new(Some(Box::new(rest))) })
}

/// Who reads what is left of a body.
type Rest = Box<dyn FnOnce(BoxFuture<'static, ()>) + Send>;

struct Timed {
    body: Body,
    limit: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    /// Whether its end was seen, or that it has none.
    is_over: bool,
    rest: Mutex<Option<Rest>>,
}

impl Drop for Timed {
    fn drop(&mut self) {
        if self.is_over || self.body.is_end_stream() {
            return;
        }
        let body = std::mem::take(&mut self.body);
        if let Some(rest) = self.rest.get_mut().ok().and_then(Option::take) {
            rest(Box::pin(read_unwanted(body)));
        }
    }
}

/// Reads what nobody wants, so that its sender comes to its end and to its answer.
async fn read_unwanted(mut body: Body) {
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
            if read > UNWANTED_BYTES {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(UNWANTED_TIME, reading).await;
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            self.is_over = !matches!(frame, Some(Ok(_)));
            return Poll::Ready(frame);
        }
        let limit = self.limit;
        let silence =
            self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.is_over = true;
        let message = format!("no byte of the body came for {} s", limit.as_secs());
        let error = io::Error::new(io::ErrorKind::TimedOut, message);
        Poll::Ready(Some(Err(axum::Error::new(error))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    fn nobody(_: BoxFuture<'static, ()>) {
        panic!("nothing is left to be read");
    }

    #[tokio::test]
    async fn who_pauses_for_too_long_is_not_waited_for() {
        let stalled = Body::from_stream(futures::stream::pending::<io::Result<Bytes>>());
        let error = timed(stalled, Duration::from_millis(20), nobody).collect().await.unwrap_err();
        assert!(format!("{error:?}").contains("TimedOut"), "{error:?}");
        let whole = timed(Body::from("text"), Duration::from_secs(60), nobody).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "text");
    }

    #[tokio::test]
    async fn what_nobody_wants_is_read_to_its_end_within_bounds() {
        let read = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        for (pieces, wanted) in [(3_u64, 3_u64), (u64::MAX, UNWANTED_BYTES / (1 << 20) + 1)] {
            let counted = std::sync::Arc::clone(&read);
            counted.store(0, std::sync::atomic::Ordering::Relaxed);
            let pieces = futures::stream::iter(0..pieces).map(move |_| {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                io::Result::Ok(Bytes::from(vec![0; 1 << 20]))
            });
            let (give, mut rest) = tokio::sync::mpsc::unbounded_channel();
            drop(timed(Body::from_stream(pieces), Duration::from_secs(60), move |left| {
                drop(give.send(left));
            }));
            rest.recv().await.expect("something is left").await;
            assert_eq!(read.load(std::sync::atomic::Ordering::Relaxed), wanted);
        }
    }
}
