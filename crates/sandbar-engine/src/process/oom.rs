use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// Score of commands, of a range up to 1000: they are chosen before the agent, which the launch gave less, whatever
/// their sizes, as the score counts in thousandths of all memory.
const COMMAND_SCORE: i16 = 800;

/// Makes the kernel choose commands before their starter when memory runs out.
///
/// A new process can't write its own score: where a single id is mapped, the file belongs to an id that has no name.
/// So the starter raises its own for the moment in which it forks, and lowers it again; it may, down to where it was.
#[derive(Debug)]
pub struct OomScore {
    file: OwnedFd,
    own: i16,
}

impl OomScore {
    /// Opens this process's score; to be called before [`hide_from_ptrace`](super::hide_from_ptrace), which takes the
    /// file away. Fails where there is no `/proc` to write to.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/oom_score_adj", flags, Mode::empty())?;
        let mut text = [0; 16];
        let count = rustix::io::read(&file, &mut text)?;
        let own = std::str::from_utf8(&text[..count]).ok().and_then(|text| text.trim().parse().ok());
        let own = own.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no score in the file"))?;
        Ok(Self { file, own })
    }

    /// Runs something that forks; what it forks keeps the raised score.
    pub(super) fn while_raised<T>(&self, fork: impl FnOnce() -> T) -> T {
        if self.own >= COMMAND_SCORE {
            return fork();
        }
        // Without the score commands run all the same, and only the order of victims is less good.
        let _ = self.write(COMMAND_SCORE);
        let forked = fork();
        let _ = self.write(self.own);
        forked
    }

    fn write(&self, score: i16) -> io::Result<()> {
        rustix::io::pwrite(&self.file, score.to_string().as_bytes(), 0)?;
        Ok(())
    }
}
