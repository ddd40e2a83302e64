use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sandbar_wire::envd::{Code, EntryInfo, RpcError};

use super::Context;
use super::entry::describe;
use super::error::failed;
use crate::users::Names;

/// Most entries of one answer, which is built in memory (about 300 bytes each).
const MAX_ENTRIES: usize = 200_000;

/// Describes everything below a folder, in the order of a walk by name, without following links. What vanishes
/// meanwhile is left out.
pub(crate) fn list(context: &Context, path: &Path, depth: u32) -> Result<Vec<EntryInfo>, RpcError> {
    let meta = fs::metadata(path).map_err(|error| failed("list", path, &error))?;
    if !meta.is_dir() {
        return Err(RpcError::new(
            Code::InvalidArgument,
            format!("path '{}' is not a directory", path.display()),
        ));
    }
    let names = Names::load(&context.etc);
    let mut entries = Vec::new();
    walk(&names, path, depth, &mut entries)?;
    Ok(entries)
}

/// Without recursion: whoever made the tree chose how deep it is.
fn walk(names: &Names, top: &Path, depth: u32, entries: &mut Vec<EntryInfo>) -> Result<(), RpcError> {
    // For each folder on the way down, what is still to be described in it.
    let mut way = vec![read(top, entries.len())?.into_iter()];
    while let Some(folder) = way.last_mut() {
        let Some((path, is_folder)) = folder.next() else {
            way.pop();
            continue;
        };
        match describe(names, &path) {
            Ok(info) => entries.push(info),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("list", &path, &error)),
        }
        if is_folder && way.len() < usize::try_from(depth).unwrap_or(usize::MAX) {
            match read(&path, entries.len()) {
                Ok(inner) => way.push(inner.into_iter()),
                Err(error) if error.code == Code::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What is in a folder, by name, each with whether it is a folder too.
fn read(folder: &Path, known: usize) -> Result<Vec<(PathBuf, bool)>, RpcError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed("list", folder, &error))? {
        let entry = entry.map_err(|error| failed("list", folder, &error))?;
        found.push((entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir())));
        if known + found.len() > MAX_ENTRIES {
            let text =
                format!("list '{}': more than {MAX_ENTRIES} entries; list its parts", folder.display());
            return Err(RpcError::new(Code::ResourceExhausted, text));
        }
    }
    found.sort_by(|one, other| one.0.file_name().cmp(&other.0.file_name()));
    Ok(found)
}
