//! An archive as files beneath a folder.

mod below;
mod folders;
mod name;
mod place;

pub(crate) use name::{check_target, inside};

use std::io::Read;
use std::os::fd::BorrowedFd;

use crate::hooks::Hooks;
use crate::read::{Kind, Members};
use crate::unpack::place::Place;
use crate::{ArchiveError, Progress, Rules};

/// What content is read and written in, in bytes.
const CHUNK: usize = 64 * 1024;

/// Unpacks one archive.
///
/// Nothing outside the folder is ever touched, and no link is followed, whatever the archive holds. If it fails, what came before stays in the folder: unpack
/// into an empty one that is given up then. Until the end all folders in it belong to the caller alone, so that it can be removed.
#[derive(Debug, Default)]
pub struct Unpack<'a> {
    rules: Rules,
    hooks: Hooks<'a>,
    below: &'a [BorrowedFd<'a>],
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackReport {
    /// Members unpacked.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Members that were left out, as the rules say.
    pub skipped: u64,
    /// Extended attributes that were not restored, as the rules say or because the file system has none.
    pub dropped_xattrs: u64,
}

impl<'a> Unpack<'a> {
    /// With these rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules, hooks: Hooks::default(), below: &[] }
    }

    /// With the layers that a root file system lies on, the topmost first: a folder that the archive does not name, but something in it, is as it is there. Where none has it,
    /// it is root's with mode 0755.
    pub fn with_below(mut self, layers: &'a [BorrowedFd<'a>]) -> Self {
        self.below = layers;
        self
    }

    /// Is told how far it is, after each member and each block of content.
    pub fn with_progress(mut self, progress: &'a mut dyn FnMut(Progress)) -> Self {
        self.hooks.progress = Some(progress);
        self
    }

    /// Is asked between blocks whether to stop.
    pub fn with_cancelled(mut self, cancelled: &'a dyn Fn() -> bool) -> Self {
        self.hooks.cancelled = Some(cancelled);
        self
    }

    /// Unpacks `tar`, which is plain, into the folder `into`. It reads up to the stream's end, which must be the archive's.
    pub fn run(mut self, tar: &mut dyn Read, into: BorrowedFd<'_>) -> Result<UnpackReport, ArchiveError> {
        let mut members = Members::new(tar, self.rules.max_header);
        let mut place = Place::new(into, &self.rules);
        let mut report = UnpackReport::default();
        let mut chunk = vec![0; CHUNK];
        let mut seen = 0;
        while let Some(member) = members.next(&self.hooks)? {
            let of = |error: ArchiveError| error.of(&member.path);
            seen += 1;
            if seen > self.rules.max_entries {
                let text = format!("the archive has more than {} members", self.rules.max_entries);
                return Err(of(ArchiveError::limit(text)));
            }
            if let Kind::File(size) = member.kind
                && report.bytes.saturating_add(size) > self.rules.max_bytes
            {
                let text = format!("the archive has more than {} bytes of content", self.rules.max_bytes);
                return Err(of(ArchiveError::limit(text)));
            }
            match place.put(&member).map_err(of)? {
                place::Put::Skipped => report.skipped += 1,
                place::Put::Done => report.entries += 1,
                place::Put::File(mut file) => {
                    loop {
                        self.hooks.check().map_err(of)?;
                        let read = members.content(&mut chunk).map_err(of)?;
                        if read == 0 {
                            break;
                        }
                        file.write(&chunk[..read]).map_err(of)?;
                        report.bytes += read as u64;
                        self.hooks.tell(Progress { entries: report.entries, bytes: report.bytes });
                    }
                    place.close(&file, &member).map_err(of)?;
                    report.entries += 1;
                }
            }
            self.hooks.tell(Progress { entries: report.entries, bytes: report.bytes });
        }
        place.finish(self.below)?;
        report.dropped_xattrs = place.dropped_xattrs;
        Ok(report)
    }
}
