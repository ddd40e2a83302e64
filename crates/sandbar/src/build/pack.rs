use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::context::BuildContext;
use super::{PREPARE, io};
use crate::{Error, ErrorKind, GuestPath, Result};

/// Most bytes that one instruction copies: more is better mounted.
pub const MAX_CONTEXT_BYTES: u64 = 4 << 30;
/// Most files and folders that one instruction copies: several of the largest trees of dependencies.
pub const MAX_CONTEXT_ENTRIES: u64 = 1_000_000;
/// The time of all files: 2000-01-01, which every format of archives can have. With their own, the same content would not be known again.
const TIME: u64 = 946_684_800;
/// `O_NOFOLLOW` of Linux on x86-64 and arm64.
#[cfg(target_arch = "x86_64")]
const NO_FOLLOW: i32 = 0o400_000;
#[cfg(not(target_arch = "x86_64"))]
const NO_FOLLOW: i32 = 0o100_000;

/// Packs sources of a context, and answers below what they are to be unpacked.
pub(super) fn pack(
    context: &BuildContext,
    sources: &[String],
    to: &GuestPath,
    into: bool,
    output: &mut File,
) -> Result<GuestPath> {
    let found = sources.iter().map(|source| context.find(source)).collect::<Result<Vec<_>>>()?;
    let mut packer = Packer { context, builder: Builder::new(BufWriter::new(output)), bytes: 0, entries: 0 };
    let below = match found.as_slice() {
        [file] if !into && !file.is_dir() => {
            let (Some(parent), Some(name)) = (to.parent(), to.file_name()) else {
                return Err(Error::invalid(PREPARE, "a file can't be copied to `/` itself"));
            };
            packer.add(file, Path::new(OsStr::from_bytes(name)))?;
            parent
        }
        sources => {
            for source in sources {
                if source.is_dir() {
                    packer.folder(source, Path::new(""))?;
                } else if let Some(name) = source.file_name() {
                    packer.add(source, Path::new(name))?;
                }
            }
            to.clone()
        }
    };
    packer
        .builder
        .into_inner()
        .and_then(|mut output| output.flush())
        .map_err(|cause| io("an archive", cause))?;
    Ok(below)
}

struct Packer<'a, W: Write> {
    context: &'a BuildContext,
    builder: Builder<W>,
    bytes: u64,
    entries: u64,
}

impl<W: Write> Packer<'_, W> {
    /// What is in a folder, by name, so that the same folder gives the same archive.
    fn folder(&mut self, folder: &Path, name: &Path) -> Result<()> {
        let broken = |cause| io(&format!("`{}`", folder.display()), cause);
        let mut inside = std::fs::read_dir(folder)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.path()))
                    .collect::<std::io::Result<Vec<PathBuf>>>()
            })
            .map_err(broken)?;
        inside.sort();
        for place in inside {
            if self.context.is_ignored(&place) {
                continue;
            }
            let Some(last) = place.file_name() else { continue };
            self.add(&place, &name.join(last))?;
        }
        Ok(())
    }

    fn add(&mut self, place: &Path, name: &Path) -> Result<()> {
        let shown = place.display();
        let broken = |cause| io(&format!("`{shown}`"), cause);
        let data = place.symlink_metadata().map_err(broken)?;
        self.entries += 1;
        if self.entries > MAX_CONTEXT_ENTRIES {
            return Err(too_much(&format!("more than {MAX_CONTEXT_ENTRIES} files")));
        }
        let mut header = Header::new_ustar();
        header.set_mtime(TIME);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mode(data.mode() & 0o777);
        header.set_size(0);
        if data.is_symlink() {
            let target = std::fs::read_link(place).map_err(broken)?;
            if self.context.leads_out(place, &target) {
                let why = format!("the link `{shown}` leads to `{}`, out of the context", target.display());
                return Err(Error::invalid(PREPARE, why)
                    .with_hint("copy what it leads to into the context, or leave it out"));
            }
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            return self.builder.append_link(&mut header, name, target).map_err(broken);
        }
        if data.is_dir() {
            header.set_entry_type(EntryType::Directory);
            self.builder.append_data(&mut header, name, std::io::empty()).map_err(broken)?;
            return self.folder(place, name);
        }
        if !data.is_file() {
            let why = format!("`{shown}` is a socket, a pipe or a device");
            return Err(Error::invalid(PREPARE, why).with_hint("leave it out"));
        }
        // Nobody changes it to a link between the look and this.
        let file = File::options().read(true).custom_flags(NO_FOLLOW).open(place).map_err(broken)?;
        let size = file.metadata().map_err(broken)?.len();
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_CONTEXT_BYTES {
            return Err(too_much(&format!("more than {} GiB", MAX_CONTEXT_BYTES >> 30)));
        }
        header.set_entry_type(EntryType::Regular);
        header.set_size(size);
        let mut content = file.take(size);
        self.builder.append_data(&mut header, name, &mut content).map_err(broken)?;
        if content.limit() > 0 {
            let why = format!("`{shown}` became shorter while it was read");
            return Err(Error::new(ErrorKind::Unavailable, PREPARE, why).with_hint("try again"));
        }
        Ok(())
    }
}

fn too_much(what: &str) -> Error {
    Error::new(ErrorKind::LimitExceeded, PREPARE, format!("it copies {what}"))
        .with_hint(format!("leave out what is not needed in `{}`", super::IGNORE_FILE))
}
