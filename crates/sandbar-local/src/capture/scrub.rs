//! What a sandbox alone may have, taken out of a copy of its files: who it is, and whom it alone trusts.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, unlinkat};
use rustix::io::Errno;
use sandbar_core::Result;
use sandbar_egress::intercept::Authority;

use crate::error::{found, io_error};
use crate::home::Folder;
use crate::store::{ROOT, Staged, USR};

/// What each sandbox gets anew: its name, the hosts that it knows, its number, whom it asks for names.
const IDENTITY: &[&str] = &["hostname", "hosts", "machine-id", "resolv.conf"];
/// The agent's names of the certificate that a sandbox alone trusts: see `trust.rs` there.
const CERTIFICATE: &str = "sandbar-egress.pem";
const ADDED: &str = "sandbar-egress.crt";
const FOLDER: &str = "etc/ssl/certs";
/// Lists that the agent adds it to.
const LISTS: &[&str] = &[
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/ca-bundle.pem",
    "etc/ssl/cert.pem",
];
/// Longest list that is looked through, in bytes: the world's authorities take a quarter of a MiB.
const MAX_LIST: u64 = 16 << 20;

/// Takes it out. The tree is nobody's but the caller's by now, and no link in it is followed.
pub(super) fn scrub(staged: &Staged<'_>, folder: &Folder, operation: &'static str) -> Result<()> {
    let broken = |cause: std::io::Error| io_error(operation, "what a sandbox alone may have", cause);
    let kept = folder.authority().map_err(broken)?;
    let certificate = kept.map(|sealed| Authority::from_sealed(&sealed)).transpose()?;
    let certificate = certificate.map(|authority| authority.certificate_pem());
    take_out(staged, certificate.as_deref())
        .and_then(|()| Ok(rustix::fs::syncfs(staged.dir())?))
        .map_err(broken)
}

fn take_out(staged: &Staged<'_>, certificate: Option<&str>) -> std::io::Result<()> {
    let Some(root) = part(staged, ROOT)? else { return Ok(()) };
    if let Some(etc) = beneath(&root, "etc")? {
        for name in IDENTITY {
            remove(&etc, name)?;
        }
    }
    let Some(certificate) = certificate else { return Ok(()) };
    if let Some(certs) = beneath(&root, FOLDER)? {
        remove(&certs, CERTIFICATE)?;
        let reader = openat2(
            &certs,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            rules(),
        )?;
        for entry in Dir::new(reader)? {
            let entry = entry?;
            let target = readlinkat(&certs, entry.file_name(), Vec::new());
            if target.is_ok_and(|target| target.as_bytes() == CERTIFICATE.as_bytes()) {
                found(unlinkat(&certs, entry.file_name(), AtFlags::empty()))?;
            }
        }
    }
    for list in LISTS {
        strip(&root, list, certificate)?;
    }
    for (part_name, place) in
        [(USR, "local/share/ca-certificates"), (ROOT, "usr/local/share/ca-certificates")]
    {
        if let Some(part) = part(staged, part_name)?
            && let Some(folder) = beneath(&part, place)?
        {
            remove(&folder, ADDED)?;
        }
    }
    Ok(())
}

fn rules() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

fn part(staged: &Staged<'_>, name: &str) -> std::io::Result<Option<OwnedFd>> {
    beneath(staged.dir(), name)
}

/// A folder of the copy; `None` where there is no such folder of its own.
fn beneath(at: &OwnedFd, place: &str) -> std::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    none_of(openat2(at, place, flags, Mode::empty(), rules()))
}

fn none_of<T>(opened: rustix::io::Result<T>) -> std::io::Result<Option<T>> {
    match opened {
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        opened => Ok(found(opened)?),
    }
}

/// Removes a file; a folder of that name is somebody's own.
fn remove(folder: &OwnedFd, name: &str) -> std::io::Result<()> {
    match found(unlinkat(folder, name, AtFlags::empty())) {
        Ok(_) | Err(Errno::ISDIR) => Ok(()),
        Err(cause) => Err(cause.into()),
    }
}

/// Takes the certificate out of a list.
fn strip(root: &OwnedFd, list: &str, certificate: &str) -> std::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Some(file) = none_of(openat2(root, list, flags, Mode::empty(), rules()))? else { return Ok(()) };
    if !rustix::fs::FileType::from_raw_mode(fstat(&file)?.st_mode).is_file() {
        return Ok(());
    }
    let mut file = std::fs::File::from(file);
    let mut text = Vec::new();
    std::io::Read::by_ref(&mut file).take(MAX_LIST).read_to_end(&mut text)?;
    let wanted = [b"\n", certificate.as_bytes()].concat();
    let Some(start) = text.windows(wanted.len()).position(|window| window == wanted) else { return Ok(()) };
    text.drain(start..start + wanted.len());
    std::io::Seek::rewind(&mut file)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)
}
