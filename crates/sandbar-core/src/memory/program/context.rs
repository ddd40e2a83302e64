use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::memory::machine::Machine;
use crate::memory::process::{Broken, Input, Pid, Streams};

/// Environment variables as bytes.
pub(in crate::memory) type Env = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an emulated program is given: its arguments, environment, working folder and streams.
#[derive(Clone)]
pub struct ProgramContext {
    pub(in crate::memory) machine: Arc<Machine>,
    pub(in crate::memory) pid: Pid,
    pub(in crate::memory) tree: Pid,
    pub(in crate::memory) argv: Vec<Vec<u8>>,
    pub(in crate::memory) env: Env,
    pub(in crate::memory) cwd: Vec<u8>,
    pub(in crate::memory) user: &'static str,
    pub(in crate::memory) streams: Streams,
}

impl ProgramContext {
    /// The arguments, the program's own name first.
    pub fn argv(&self) -> &[Vec<u8>] {
        &self.argv
    }

    /// A variable of the environment.
    pub fn env(&self, name: &str) -> Option<&[u8]> {
        self.env.get(name.as_bytes()).map(Vec::as_slice)
    }

    /// Up to `most` bytes of standard input; empty at its end.
    pub async fn read_stdin(&self, most: usize) -> Bytes {
        self.streams.stdin.read(most).await
    }

    /// Writes to standard output. `false` means that nobody reads it any more and that the program had better end.
    pub async fn write_stdout(&self, bytes: &[u8]) -> bool {
        self.streams.stdout.write(bytes).await.is_ok()
    }

    /// Writes to standard error. `false` as in [`ProgramContext::write_stdout`].
    pub async fn write_stderr(&self, bytes: &[u8]) -> bool {
        self.streams.stderr.write(bytes).await.is_ok()
    }

    /// The arguments after the program's name.
    pub(super) fn args(&self) -> &[Vec<u8>] {
        self.argv.get(1..).unwrap_or_default()
    }

    pub(in crate::memory) async fn out(&self, bytes: impl AsRef<[u8]>) -> Result<(), Broken> {
        self.streams.stdout.write(bytes.as_ref()).await
    }

    /// Prints `program: message` to standard error and answers `code`.
    pub(in crate::memory) async fn complain(
        &self,
        message: impl AsRef<[u8]>,
        code: i32,
    ) -> Result<i32, Broken> {
        let mut line = self.argv.first().cloned().unwrap_or_default();
        line.extend_from_slice(b": ");
        line.extend_from_slice(message.as_ref());
        line.push(b'\n');
        self.streams.stderr.write(&line).await?;
        Ok(code)
    }

    /// `path` as an absolute one.
    pub(in crate::memory) fn path(&self, path: &[u8]) -> Vec<u8> {
        absolute(&self.cwd, path)
    }

    /// Opens a file for reading, or answers the words to complain with.
    pub(in crate::memory) fn open(&self, path: &[u8]) -> Result<Input, &'static str> {
        let absolute = self.path(path);
        let found = self.machine.disk.lock().find(self.machine.root, &absolute);
        let node = found.map_err(super::super::disk::DiskError::words)?;
        Input::open(&self.machine.disk, node).ok_or("Is a directory")
    }
}

impl fmt::Debug for ProgramContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramContext").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// `path` seen from `cwd`.
pub(in crate::memory) fn absolute(cwd: &[u8], path: &[u8]) -> Vec<u8> {
    if path.first() == Some(&b'/') { path.to_vec() } else { [cwd, path].join(&b'/') }
}
