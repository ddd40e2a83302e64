use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use sandbar_wire::envd::HttpError;
use tokio::sync::mpsc;

/// Body of an answer.
pub(crate) enum Body {
    /// Nothing, or all of it.
    Full(Option<Bytes>),
    /// What a task writes, of a length that may be known.
    Channel { receiver: mpsc::Receiver<io::Result<Bytes>>, length: Option<u64> },
    /// Frames of a stream.
    Frames(Pin<Box<dyn HttpBody<Data = Bytes, Error = io::Error>>>),
}

/// Where a task puts the pieces of a body.
pub(crate) type BodyWriter = mpsc::Sender<io::Result<Bytes>>;

impl Body {
    /// A body with that many pieces on the way at most.
    pub(crate) fn channel(pieces: usize, length: Option<u64>) -> (BodyWriter, Self) {
        let (sender, receiver) = mpsc::channel(pieces);
        (sender, Self::Channel { receiver, length })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Some(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Full(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Frame::data).map(Ok))
            }
            Self::Channel { receiver, .. } => {
                receiver.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Frames(frames) => frames.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Channel { .. } => false,
            Self::Frames(frames) => frames.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Channel { length: Some(length), .. } => SizeHint::with_exact(*length),
            Self::Channel { .. } | Self::Frames(_) => SizeHint::default(),
        }
    }
}

/// The next piece of a request's body; `None` at its end.
pub(crate) async fn next_piece(body: &mut Incoming) -> io::Result<Option<Bytes>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        match frame.transpose().map_err(io::Error::other)?.map(Frame::into_data) {
            None => return Ok(None),
            Some(Ok(data)) => return Ok(Some(data)),
            // Trailers carry nothing that is looked at.
            Some(Err(_)) => {}
        }
    }
}

/// The whole body of a request, of at most `max` bytes.
pub(crate) async fn read_all(mut body: Incoming, max: usize) -> Result<Bytes, HttpError> {
    let mut whole = BytesMut::new();
    while let Some(piece) =
        next_piece(&mut body).await.map_err(|error| HttpError::new(400, format!("read the body: {error}")))?
    {
        if whole.len() + piece.len() > max {
            return Err(HttpError::new(413, format!("body is above {max} bytes")));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
