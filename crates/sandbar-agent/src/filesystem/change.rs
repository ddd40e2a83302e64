use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sandbar_wire::envd::{Code, EntryInfo, RpcError};

use super::Context;
use super::entry::stat;
use super::error::failed;

/// Mode of new folders, before the umask.
const FOLDER_MODE: u32 = 0o755;

/// Makes a folder and its parents.
pub(crate) fn make_dir(context: &Context, path: &Path) -> Result<EntryInfo, RpcError> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            let text = format!("directory already exists: {}", path.display());
            return Err(RpcError::new(Code::AlreadyExists, text));
        }
        Ok(_) => {
            let text = format!("path already exists but it is not a directory: {}", path.display());
            return Err(RpcError::new(Code::InvalidArgument, text));
        }
        Err(_) => {}
    }
    make_folders(context, path).map_err(|error| failed("make", path, &error))?;
    stat(context, path)
}

/// Makes the folders above a path.
pub(crate) fn make_parents(context: &Context, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| make_folders(context, parent))
}

fn make_folders(context: &Context, path: &Path) -> io::Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut at = path;
    loop {
        match fs::metadata(at) {
            Ok(meta) if meta.is_dir() => break,
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(at.to_owned()),
            Err(error) => return Err(error),
        }
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    for folder in missing.iter().rev() {
        match fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Ok(()) => {
                if let Some((uid, gid)) = context.owner {
                    std::os::unix::fs::lchown(folder, Some(uid), Some(gid))?;
                }
            }
            // Somebody else made it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Renames an entry, making the parents of its new name.
pub(crate) fn rename(context: &Context, source: &Path, destination: &Path) -> Result<EntryInfo, RpcError> {
    fs::symlink_metadata(source).map_err(|error| failed("move", source, &error))?;
    make_parents(context, destination).map_err(|error| failed("move", destination, &error))?;
    fs::rename(source, destination).map_err(|error| failed("move", source, &error))?;
    stat(context, destination)
}
