//! What a sandbox alone may have, taken out of a copy of its files: who it is, and whom it alone trusts.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, unlinkat};
use rustix::io::Errno;
use sandbar_core::Result;
use sandbar_egress::intercept::Authority;
use sandbar_wire::trust::{ADDED, FOLDER, LISTS, MAX_LIST, NAME, without};

use crate::error::{found, io_error};
use crate::home::Folder;
use crate::store::{ROOT, Staged, USR};

/// What each sandbox gets anew: its name, the hosts that it knows, its number, whom it asks for names.
const IDENTITY: &[&str] = &["hostname", "hosts", "machine-id", "resolv.conf"];
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
    // Also where this sandbox has none: its files may be from one that had.
    let name = format!("{NAME}.pem");
    if let Some(certs) = beneath(&root, &format!("etc/{FOLDER}"))? {
        remove(&certs, &name)?;
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
            if target.is_ok_and(|target| target.as_bytes() == name.as_bytes()) {
                found(unlinkat(&certs, entry.file_name(), AtFlags::empty()))?;
            }
        }
    }
    for list in LISTS {
        strip(&root, &format!("etc/{list}"), certificate)?;
    }
    // `/usr` may be a part of its own.
    for (part_name, place) in [(USR, ADDED.trim_start_matches("usr/")), (ROOT, ADDED)] {
        if let Some(part) = part(staged, part_name)?
            && let Some(folder) = beneath(&part, place)?
        {
            remove(&folder, &format!("{NAME}.crt"))?;
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

/// Takes the certificate out of a list, and any that a sandbox before this one left there.
fn strip(root: &OwnedFd, list: &str, certificate: Option<&str>) -> std::io::Result<()> {
    // What is no regular file is not even opened for reading.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Some(seen) = none_of(openat2(root, list, flags, Mode::empty(), rules()))? else { return Ok(()) };
    if !rustix::fs::FileType::from_raw_mode(fstat(&seen)?.st_mode).is_file() {
        return Ok(());
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Some(file) = none_of(openat2(root, list, flags, Mode::empty(), rules()))? else { return Ok(()) };
    let mut file = std::fs::File::from(file);
    if file.metadata()?.len() > MAX_LIST {
        // The agent adds nothing to one like this.
        return Ok(());
    }
    let mut text = Vec::new();
    std::io::Read::by_ref(&mut file).take(MAX_LIST).read_to_end(&mut text)?;
    let left = without(&text, certificate.as_slice());
    if left != text {
        std::io::Seek::rewind(&mut file)?;
        file.write_all(&left)?;
        file.set_len(left.len() as u64)?;
    }
    Ok(())
}
