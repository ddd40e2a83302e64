//! What a worker does.

use std::io::{self, Read};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::syncfs;
use sandbar_archive::{
    ArchiveError, Owners, Pack, PackOwners, Rules, Unpack, UnpackReport, Whiteouts, decompress,
};
use sandbar_core::ErrorKind;
use sha2::{Digest as _, Sha256};

use super::job::{Failure, Job, PackIds, Progress, Report, UnpackIds};
use super::{accounts, tree};

/// Between two lines about how far it is: so many entries or bytes.
const TOLD_ENTRIES: u64 = 1000;
const TOLD_BYTES: u64 = 8 << 20;

/// Says how far a job is, not too often.
pub(super) struct Teller<'a> {
    say: &'a mut dyn FnMut(Progress),
    last: Progress,
}

impl<'a> Teller<'a> {
    pub(super) fn new(say: &'a mut dyn FnMut(Progress)) -> Self {
        Self { say, last: Progress::default() }
    }

    pub(super) fn tell(&mut self, now: Progress) {
        let entries = now.entries.saturating_sub(self.last.entries);
        if entries >= TOLD_ENTRIES || now.bytes.saturating_sub(self.last.bytes) >= TOLD_BYTES {
            self.last = now;
            (self.say)(now);
        }
    }
}

/// Does the job with its descriptors, as many as it has.
pub(super) fn run(
    job: &Job,
    mut given: Vec<OwnedFd>,
    say: &mut dyn FnMut(Progress),
) -> Result<Report, Failure> {
    let mut teller = Teller::new(say);
    let last = given.pop().ok_or_else(|| Failure::new(ErrorKind::Protocol, "the job has no descriptors"))?;
    match (job, given.as_slice()) {
        (Job::Unpack { whiteouts, ids, .. }, [archive, below @ ..]) => {
            let below: Vec<_> = below.iter().map(|layer| layer.as_fd()).collect();
            unpack(archive, &below, &last, *whiteouts, *ids, &mut teller)
        }
        (Job::Merge { keep_whiteouts, .. }, layers @ [_, ..]) => {
            let report = tree::merge(layers, &last, *keep_whiteouts, None, &mut teller)?;
            sync(&last)?;
            Ok(report)
        }
        (Job::Copy { owner }, [_]) => {
            let report = tree::merge(&given, &last, false, *owner, &mut teller)?;
            sync(&last)?;
            Ok(report)
        }
        (Job::Complete { user, workdir, .. }, layers) => {
            accounts::complete(layers, &last, user.as_deref(), workdir.as_deref())
        }
        (Job::Pack { ids }, [folder]) => pack(folder, last, *ids, &mut teller),
        (Job::Measure { digest }, []) => tree::measure(&last, *digest, &mut teller),
        _ => Err(Failure::new(ErrorKind::Protocol, "the job has other descriptors than it should")),
    }
}

/// What has a name in the store is whole after a crash of the machine, too.
fn sync(folder: &OwnedFd) -> Result<(), Failure> {
    syncfs(folder).map_err(|cause| Failure::io("write back", b".", cause))
}

fn unpack(
    archive: &OwnedFd,
    below: &[BorrowedFd<'_>],
    folder: &OwnedFd,
    whiteouts: bool,
    ids: UnpackIds,
    teller: &mut Teller<'_>,
) -> Result<Report, Failure> {
    let has_ids = rustix::process::getuid().is_root();
    let keep = ids == UnpackIds::AsIs && has_ids;
    let rules = Rules::rootfs()
        .with_owners(if keep { Owners::FromArchive } else { Owners::Caller })
        .with_whiteouts(if whiteouts { Whiteouts::Oci } else { Whiteouts::None });
    let archive = archive.try_clone().map_err(|cause| Failure::io("open", b"archive", cause))?;
    let mut raw = Hashed { inner: std::fs::File::from(archive), hash: Sha256::new() };
    let (done, digest) = unpack_plain(&mut raw, below, folder, rules, teller)?;
    io::copy(&mut raw, &mut io::sink()).map_err(|cause| Failure::io("read", b"archive", cause))?;
    sync(folder)?;
    Ok(Report {
        entries: done.entries,
        bytes: done.bytes,
        skipped: done.skipped,
        digest: Some(digest),
        stream_digest: Some(hex(raw.hash)),
        ..Report::default()
    })
}

/// Takes the compression off and unpacks; with the digest of what was below it.
fn unpack_plain(
    raw: &mut (impl Read + Send),
    below: &[BorrowedFd<'_>],
    folder: &OwnedFd,
    rules: Rules,
    teller: &mut Teller<'_>,
) -> Result<(UnpackReport, String), Failure> {
    let broken = |cause: io::Error| Failure::io("read", b"archive", cause);
    let mut plain = Hashed { inner: decompress(raw).map_err(broken)?, hash: Sha256::new() };
    let mut progress = |far: sandbar_archive::Progress| {
        teller.tell(Progress { entries: far.entries, bytes: far.bytes });
    };
    let unpack = Unpack::new(rules).with_below(below).with_progress(&mut progress);
    let done = unpack.run(&mut plain, folder.as_fd());
    let done = done.map_err(|error| archive_failure(&error))?;
    // Nothing after the archive is left unread: it would be missing in the digest.
    io::copy(&mut plain, &mut io::sink()).map_err(broken)?;
    Ok((done, hex(plain.hash)))
}

fn pack(
    folder: &OwnedFd,
    archive: OwnedFd,
    ids: PackIds,
    teller: &mut Teller<'_>,
) -> Result<Report, Failure> {
    let owners = match ids {
        PackIds::AsIs => PackOwners::AsIs,
        PackIds::Root => PackOwners::Zero,
    };
    let folder = tree::reopen(folder)?;
    let mut progress = |far: sandbar_archive::Progress| {
        teller.tell(Progress { entries: far.entries, bytes: far.bytes });
    };
    let done = Pack::new().with_owners(owners).with_progress(&mut progress).run(
        folder.as_fd(),
        b"",
        &mut std::fs::File::from(archive),
    );
    let done = done.map_err(|error| archive_failure(&error))?;
    Ok(Report { entries: done.entries, bytes: done.bytes, skipped: done.skipped, ..Report::default() })
}

fn archive_failure(error: &ArchiveError) -> Failure {
    use sandbar_archive::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::Malformed | Kind::Truncated | Kind::Refused => ErrorKind::InvalidInput,
        Kind::Limit => ErrorKind::LimitExceeded,
        _ => std::error::Error::source(error)
            .and_then(|cause| cause.downcast_ref::<io::Error>())
            .and_then(io::Error::raw_os_error)
            .map_or(ErrorKind::Unexpected, |code| {
                Failure::io("", b"", io::Error::from_raw_os_error(code)).kind
            }),
    };
    Failure::new(kind, error.to_string())
}

struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// A digest in hexadecimal digits.
pub(crate) fn hex(hash: Sha256) -> String {
    use std::fmt::Write as _;
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
