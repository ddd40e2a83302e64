use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// A body whose sender may pause for `limit` at most.
pub(crate) fn timed(body: Body, limit: Duration) -> Body {
    if body.is_end_stream() {
        return body;
    }
    Body::new(Timed { body, limit, silence: None })
}

struct Timed {
    body: Body,
    limit: Duration,
    silence: Option<Pin<Box<Sleep>>>,
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
            return Poll::Ready(frame);
        }
        let limit = self.limit;
        let silence =
            self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        if silence.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
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
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn who_pauses_for_too_long_is_not_waited_for() {
        let stalled = Body::from_stream(futures::stream::pending::<io::Result<Bytes>>());
        let error = timed(stalled, Duration::from_millis(20)).collect().await.unwrap_err();
        assert!(format!("{error:?}").contains("TimedOut"), "{error:?}");
        let whole = timed(Body::from("text"), Duration::from_secs(60)).collect().await.unwrap();
        assert_eq!(whole.to_bytes(), "text");
    }
}
