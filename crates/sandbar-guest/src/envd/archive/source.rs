//! The archive on its way: read once, by a thread that takes its compression off, judges its members and cuts it into pieces.

use std::io::{self, Read};

use bytes::Bytes;
use futures::StreamExt;
use sandbar_archive::{ArchiveError, Check, Rules, UnpackReport, decompress};
use sandbar_core::{ByteStream, Error, Result};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

use super::pieces::{Cutter, PIECE, Whole};

/// What the thread came to.
pub(super) type Judged = std::result::Result<(UnpackReport, Whole), ArchiveError>;

/// The pieces of an archive, and what became of it.
pub(super) struct Source {
    /// Its pieces, in order.
    pub(super) pieces: Receiver<Bytes>,
    /// Ends when all of the stream was taken, with the error of the stream where it broke off.
    feeding: Feeding,
    /// The verdict, when all pieces are out.
    judging: JoinHandle<Judged>,
}

/// The task that waits for the stream. It ends with whoever wants its bytes, and with it the thread that reads them.
struct Feeding(JoinHandle<Result<()>>);

impl Drop for Feeding {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Source {
    /// Begins to read `tar` by `rules`. Dropped, the task ends, and the thread with it.
    pub(super) fn open(mut tar: ByteStream, rules: Rules) -> Self {
        let (giver, fed) = channel::<Bytes>(1);
        let (cut, pieces) = channel(1);
        let judging = tokio::task::spawn_blocking(move || judge(fed, cut, rules));
        let feeding = tokio::spawn(async move {
            loop {
                let chunk = tokio::select! {
                    chunk = tar.next() => chunk,
                    // Nobody wants more.
                    () = giver.closed() => return Ok(()),
                };
                match chunk {
                    None => return Ok(()),
                    Some(Err(error)) => return Err(error),
                    Some(Ok(bytes)) => {
                        if giver.send(bytes).await.is_err() {
                            return Ok(());
                        }
                    }
                }
            }
        });
        Self { pieces, feeding: Feeding(feeding), judging }
    }

    /// What became of it, once all pieces are out. The stream's own error is the answer before all others.
    pub(super) async fn verdict(self) -> std::result::Result<Judged, Error> {
        let Self { pieces, mut feeding, judging } = self;
        drop(pieces);
        let judged = judging.await;
        let lost = |cause| {
            Error::new(sandbar_core::ErrorKind::Unexpected, "import", format!("the reader was lost: {cause}"))
        };
        let fed = (&mut feeding.0).await.map_err(|cause| lost(cause.to_string()))?;
        fed?;
        judged.map_err(|cause| lost(cause.to_string()))
    }
}

fn judge(fed: Receiver<Bytes>, cut: Sender<Bytes>, rules: Rules) -> Judged {
    let mut tee = Tee { from: None, cutter: Cutter::new(PIECE), cut };
    tee.from = Some(decompress(Fed { fed, held: Bytes::new() }).map_err(ArchiveError::from)?);
    let report = Check::new(rules).run(&mut tee)?;
    let (last, whole) = tee.cutter.finish();
    if let Some(last) = last {
        // Where nobody takes it, nobody asks for the verdict.
        let _ = tee.cut.blocking_send(last);
    }
    Ok((report, whole))
}

/// The stream, for a reader that waits.
struct Fed {
    fed: Receiver<Bytes>,
    held: Bytes,
}

impl Read for Fed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.held.is_empty() {
            match self.fed.blocking_recv() {
                Some(bytes) => self.held = bytes,
                None => return Ok(0),
            }
        }
        let taken = self.held.split_to(self.held.len().min(buffer.len()));
        buffer[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
}

/// Hands on what is read.
struct Tee {
    from: Option<Box<dyn Read + Send>>,
    cutter: Cutter,
    cut: Sender<Bytes>,
}

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.from {
            Some(from) => from.read(buffer)?,
            None => 0,
        };
        let mut left = &buffer[..read];
        while !left.is_empty() {
            let (taken, piece) = self.cutter.take(left);
            left = &left[taken..];
            if let Some(piece) = piece
                && self.cut.blocking_send(piece).is_err()
            {
                return Err(io::Error::other("nobody takes it any more"));
            }
        }
        Ok(read)
    }
}
