use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the `number`th older file, 1 the latest.
pub(crate) fn older(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

/// Moves the file out of the way, and the oldest out of existence. The caller holds the file's lock, so nobody else does the same; whoever waits for
/// the lock finds that the file is not in its place any more. An interruption leaves a gap in the numbers, which the next one closes.
pub(super) fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    // Up to the first gap everything moves by one; what is behind it stays.
    let mut last = 0;
    while last < keep && exists(&older(path, last + 1))? {
        last += 1;
    }
    for number in (1..=last).rev() {
        // Over the oldest, where there are as many as are kept.
        if number < keep {
            std::fs::rename(older(path, number), older(path, number + 1))?;
        }
    }
    std::fs::rename(path, older(path, 1))
}

fn exists(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}
