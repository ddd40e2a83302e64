//! Bodies of answers to which something happens.

use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::unfold;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;

use super::fault::{Then, Where};
use super::line::Control;
use super::proxy::Active;
use super::upstream::Connection;

/// The connection is lost, on purpose or not.
#[derive(Debug)]
pub(crate) struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is lost")
    }
}

impl std::error::Error for Lost {}

/// How a body comes through.
pub(crate) enum Shape {
    Whole,
    Cut(Where, Then),
    Pieces(usize, Option<Duration>),
}

/// The body of the server's answer, as the client gets it.
pub(crate) struct Passing {
    pub(crate) from: Incoming,
    /// Ends with the body.
    pub(crate) connection: Connection,
    pub(crate) control: Control,
    pub(crate) active: Active,
    pub(crate) shape: Shape,
    pub(crate) held: BytesMut,
    pub(crate) passed: u64,
    pub(crate) has_ended: bool,
}

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Pass(Bytes),
    More,
    /// This is the place.
    Here(Then),
    Over,
}

impl Passing {
    pub(crate) fn boxed(self) -> UnsyncBoxBody<Bytes, Lost> {
        StreamBody::new(unfold(self, Self::next)).boxed_unsync()
    }

    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Lost>, Self)> {
        loop {
            match self.shape.step(&mut self.held, self.passed, self.has_ended) {
                Step::Pass(bytes) => {
                    if let Shape::Pieces(_, pause) = self.shape {
                        if self.passed == 0 {
                            self.active.hit();
                        }
                        if let Some(pause) = pause {
                            tokio::time::sleep(pause).await;
                        }
                    }
                    self.passed += bytes.len() as u64;
                    return Some((Ok(Frame::data(bytes)), self));
                }
                Step::More => match self.from.frame().await {
                    None => self.has_ended = true,
                    Some(Err(_)) => return Some((Err(Lost), self)),
                    Some(Ok(frame)) => self.held.extend_from_slice(&frame.into_data().unwrap_or_default()),
                },
                Step::Here(then) => {
                    self.active.hit();
                    match then {
                        Then::End => return None,
                        Then::Stall => self.active.released().await,
                        Then::Reset | Then::Close => {
                            let since = self.control.flushes();
                            poll_fn(|context| self.control.poll_flushed(since, context)).await;
                            if then == Then::Reset {
                                self.control.reset();
                            }
                            return Some((Err(Lost), self));
                        }
                    }
                    self.shape = Shape::Whole;
                }
                Step::Over => {
                    drop(self.connection);
                    return None;
                }
            }
        }
    }
}

impl Shape {
    fn step(&self, held: &mut BytesMut, passed: u64, has_ended: bool) -> Step {
        let most = match self {
            Self::Cut(Where::Byte(at), then) if passed >= *at => return Step::Here(*then),
            Self::Cut(Where::Byte(at), _) => usize::try_from(at - passed).unwrap_or(usize::MAX),
            Self::Cut(Where::Before(mark), then) => match find(held, mark) {
                Some(0) => return Step::Here(*then),
                Some(at) => at,
                None if has_ended => held.len(),
                None => held.len() - begun(held, mark),
            },
            Self::Cut(Where::End, then) if has_ended && held.is_empty() => return Step::Here(*then),
            Self::Cut(Where::End, _) | Self::Whole => usize::MAX,
            Self::Pieces(size, _) => (*size).max(1),
        };
        let most = most.min(held.len());
        if most > 0 {
            return Step::Pass(held.split_to(most).freeze());
        }
        if has_ended { Step::Over } else { Step::More }
    }
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    if mark.is_empty() { None } else { text.windows(mark.len()).position(|window| window == mark) }
}

/// How many bytes at the end may be the beginning of `mark`.
fn begun(text: &[u8], mark: &[u8]) -> usize {
    (1..mark.len()).rev().find(|length| text.ends_with(&mark[..*length])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What comes through before the place, and whether it was reached, when the body arrives in these frames.
    fn through(shape: &Shape, frames: &[Vec<u8>]) -> (Vec<u8>, bool) {
        let (mut held, mut out, mut frames, mut has_ended) =
            (BytesMut::new(), Vec::new(), frames.iter(), false);
        loop {
            match shape.step(&mut held, out.len() as u64, has_ended) {
                Step::Pass(bytes) => out.extend_from_slice(&bytes),
                Step::More => match frames.next() {
                    Some(frame) => held.extend_from_slice(frame),
                    None => has_ended = true,
                },
                Step::Here(_) => return (out, true),
                Step::Over => return (out, false),
            }
        }
    }

    fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
        prop::collection::vec(prop::collection::vec(0_u8..3, 0..6), 0..6)
    }

    proptest! {
        #[test]
        fn a_place_by_number_is_that_many_bytes_in(frames in frames(), at in 0_u64..40) {
            let whole = frames.concat();
            let (out, is_reached) = through(&Shape::Cut(Where::Byte(at), Then::End), &frames);
            prop_assert_eq!(is_reached, at <= whole.len() as u64);
            let end = whole.len().min(usize::try_from(at).unwrap());
            prop_assert_eq!(out, &whole[..end]);
        }

        #[test]
        fn a_place_by_its_bytes_is_found_across_frames(frames in frames(), mark in prop::collection::vec(0_u8..3, 1..5)) {
            let whole = frames.concat();
            let at = find(&whole, &mark);
            let (out, is_reached) = through(&Shape::Cut(Where::Before(mark.into()), Then::End), &frames);
            prop_assert_eq!(is_reached, at.is_some());
            prop_assert_eq!(out, &whole[..at.unwrap_or(whole.len())]);
        }

        #[test]
        fn pieces_and_the_end_keep_every_byte(frames in frames(), size in 1_usize..5) {
            let whole = frames.concat();
            prop_assert_eq!(through(&Shape::Pieces(size, None), &frames), (whole.clone(), false));
            prop_assert_eq!(through(&Shape::Cut(Where::End, Then::Stall), &frames), (whole.clone(), true));
            prop_assert_eq!(through(&Shape::Whole, &frames), (whole, false));
        }
    }
}
