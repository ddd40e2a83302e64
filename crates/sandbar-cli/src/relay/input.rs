use std::future::pending;
use std::io;

use bytes::{Bytes, BytesMut};
use sandbar::ProcessControl;
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};
use crate::relay::typed;
use crate::stdio::Source;
use crate::terminal::Keys;

/// Most bytes handed over at once. What is read while the last ones are on their way is put together, so that many small reads do not become
/// as many calls.
const BATCH: usize = 1 << 20;
/// Reads that may wait to be handed over: a whole batch from a pipe, which gives 64 KiB at a time.
const QUEUE: usize = 16;

/// What a command reads.
#[derive(Debug)]
pub(crate) enum Input {
    /// Nothing of ours.
    None,
    /// Our standard input, to its end.
    Bytes(Source),
    /// What is typed at the caller's terminal, but for our own keys.
    Typed(Source, Keys),
}

/// Why nothing more is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// There is no more, or nobody reads it.
    All,
    /// Somebody wants to leave the command alone.
    Detach,
    /// The terminal is gone.
    HungUp,
}

/// Passes our standard input to the command, and its end. A command that reads no more is no failure: it is how `head` works.
pub(super) async fn feed(input: Input, control: &dyn ProcessControl) -> Result<Fed> {
    match input {
        Input::None => pending().await,
        Input::Bytes(source) => {
            let (sender, queue) = mpsc::channel(QUEUE);
            tokio::select! {
                done = hand_over(queue, control) => done.map(|()| Fed::All),
                () = read_all(source, sender) => pending().await,
            }
        }
        Input::Typed(source, keys) => typed::pass(&source, keys, control).await,
    }
}

async fn read_all(source: Source, sender: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let read = source.read().await;
        let last = !matches!(&read, Ok(bytes) if !bytes.is_empty());
        if sender.send(read).await.is_err() || last {
            // Whoever hands over has what it needs to come to its own end; until then the queue stays open.
            return pending().await;
        }
    }
}

/// Takes what was read until an empty read, which is the end.
async fn hand_over(mut queue: mpsc::Receiver<io::Result<Bytes>>, control: &dyn ProcessControl) -> Result<()> {
    while let Some(read) = queue.recv().await {
        let first = read.map_err(Failure::input)?;
        let (batch, ended) = batch(first, &mut queue)?;
        if !batch.is_empty() && control.write(batch).await.is_err() {
            return Ok(());
        }
        if ended == Ended::Yes {
            break;
        }
    }
    // Fails only if the command or its input is gone, and then its exit says more.
    let _ = control.close_stdin().await;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    No,
    Yes,
}

/// Puts `first` and what already waits together.
fn batch(first: Bytes, queue: &mut mpsc::Receiver<io::Result<Bytes>>) -> Result<(Bytes, Ended)> {
    if first.is_empty() {
        return Ok((first, Ended::Yes));
    }
    let mut batch = BytesMut::new();
    let mut ended = Ended::No;
    while ended == Ended::No && first.len().max(batch.len()) < BATCH {
        let Ok(read) = queue.try_recv() else { break };
        let bytes = read.map_err(Failure::input)?;
        if bytes.is_empty() {
            ended = Ended::Yes;
        } else {
            if batch.is_empty() {
                batch.reserve(BATCH);
                batch.extend_from_slice(&first);
            }
            batch.extend_from_slice(&bytes);
        }
    }
    Ok((if batch.is_empty() { first } else { batch.freeze() }, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(reads: Vec<io::Result<Bytes>>) -> mpsc::Receiver<io::Result<Bytes>> {
        let (sender, queue) = mpsc::channel(QUEUE);
        for read in reads {
            sender.try_send(read).unwrap();
        }
        queue
    }

    #[test]
    fn what_waits_goes_along_in_order() {
        let mut waiting = queue(vec![Ok(Bytes::from("b")), Ok(Bytes::from("c"))]);
        let (bytes, ended) = batch(Bytes::from("a"), &mut waiting).unwrap();
        assert_eq!((&bytes[..], ended), (&b"abc"[..], Ended::No));
        let mut waiting = queue(vec![Ok(Bytes::from("b")), Ok(Bytes::new()), Ok(Bytes::from("never"))]);
        let (bytes, ended) = batch(Bytes::from("a"), &mut waiting).unwrap();
        assert_eq!((&bytes[..], ended), (&b"ab"[..], Ended::Yes));
    }

    #[test]
    fn a_batch_is_bounded_and_an_error_is_told() {
        let big = Bytes::from(vec![0; BATCH / 2]);
        let mut waiting = queue(vec![Ok(big.clone()), Ok(big.clone())]);
        let (bytes, _) = batch(big, &mut waiting).unwrap();
        assert_eq!(bytes.len(), BATCH);
        let mut waiting = queue(vec![Err(io::Error::other("broken"))]);
        assert!(batch(Bytes::from("a"), &mut waiting).is_err());
    }
}
