use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::{PipeReader, PipeWriter};
use crate::memory::disk::{Body, Device, NodeId};
use crate::memory::world::SharedDisk;

/// Bytes read from a file or a device at a time.
const CHUNK: usize = 65_536;

/// The reader of a pipe is gone: what `SIGPIPE` tells a real process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) struct Broken;

/// The three streams of a process.
#[derive(Clone, Debug)]
pub(in crate::memory) struct Streams {
    pub(in crate::memory) stdin: Input,
    pub(in crate::memory) stdout: Output,
    pub(in crate::memory) stderr: Output,
}

/// What a process reads.
#[derive(Clone, Debug)]
pub(in crate::memory) enum Input {
    Null,
    Pipe(PipeReader),
    /// The bytes that are left, shared by all who inherited it.
    Bytes(Arc<Mutex<Bytes>>),
    Zero,
}

/// Where a process writes.
#[derive(Clone, Debug)]
pub(in crate::memory) enum Output {
    Null,
    Pipe(PipeWriter),
    File(SharedDisk, NodeId),
}

impl Input {
    pub(in crate::memory) fn bytes(bytes: Bytes) -> Self {
        Self::Bytes(Arc::new(Mutex::new(bytes)))
    }

    /// Opens a node for reading.
    pub(in crate::memory) fn open(disk: &SharedDisk, node: NodeId) -> Option<Self> {
        match &disk.lock().node(node).body {
            Body::File(content) => Some(Self::bytes(Bytes::from_owner(Content(content.clone())))),
            Body::Device(Device::Null) => Some(Self::Null),
            Body::Device(Device::Zero) => Some(Self::Zero),
            Body::Dir(_) | Body::Link(_) => None,
        }
    }

    /// Up to `most` bytes; empty at the end.
    pub(in crate::memory) async fn read(&self, most: usize) -> Bytes {
        let most = most.min(CHUNK);
        match self {
            Self::Null => Bytes::new(),
            Self::Pipe(reader) => reader.read(most).await,
            Self::Bytes(rest) => {
                let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                let count = most.min(rest.len());
                rest.split_to(count)
            }
            Self::Zero => Bytes::from(vec![0; most]),
        }
    }
}

impl Output {
    pub(in crate::memory) async fn write(&self, bytes: &[u8]) -> Result<(), Broken> {
        match self {
            Self::Null => Ok(()),
            Self::Pipe(writer) => writer.write(bytes).await,
            Self::File(disk, node) => {
                disk.lock().append(*node, bytes);
                Ok(())
            }
        }
    }
}

/// A file's content as an owner of bytes, so that reading does not copy it.
pub(in crate::memory) struct Content(pub(in crate::memory) Arc<Vec<u8>>);

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
