use std::fs;
use std::io;
use std::path::Path;

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

fn walk(names: &Names, folder: &Path, depth: u32, entries: &mut Vec<EntryInfo>) -> Result<(), RpcError> {
    let top = entries.is_empty();
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(error) if !top && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("list", folder, &error)),
    };
    let mut found = Vec::new();
    for entry in listing {
        found.push(entry.map_err(|error| failed("list", folder, &error))?);
        if entries.len() + found.len() > MAX_ENTRIES {
            let text =
                format!("list '{}': more than {MAX_ENTRIES} entries; list its parts", folder.display());
            return Err(RpcError::new(Code::ResourceExhausted, text));
        }
    }
    found.sort_by_key(fs::DirEntry::file_name);
    for entry in found {
        let path = entry.path();
        match describe(names, &path) {
            Ok(info) => entries.push(info),
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("list", &path, &error)),
        }
        if depth > 1 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(names, &path, depth - 1, entries)?;
        }
    }
    Ok(())
}
