//! File entries of the agent in the contract's words.

use jiff::Timestamp;
use sandbar_core::{EntryKind, FileEntry, GuestPath, Result};
use sandbar_wire::envd::{EntryInfo, FileType};

use crate::fault;
use crate::operation::Operation;

/// An entry. A path that is none makes no sense, whoever made it up.
pub(crate) fn entry(info: EntryInfo, operation: Operation) -> Result<FileEntry> {
    let path = match &info.path_b64 {
        Some(bytes) => GuestPath::new(bytes),
        None => GuestPath::new(&info.path),
    };
    Ok(FileEntry {
        path: path.map_err(|cause| fault::nonsense(operation, &cause))?,
        kind: match info.file_type {
            FileType::File if !is_special(&info.permissions) => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::File | FileType::Symlink | FileType::Unspecified => EntryKind::Other,
        },
        size: u64::try_from(info.size).unwrap_or(0),
        mode: info.mode,
        owner: info.owner,
        group: info.group,
        modified: info
            .modified_time
            .and_then(|time| Timestamp::new(time.seconds, i32::try_from(time.nanos).unwrap_or(0)).ok()),
        link_target: info.symlink_target.map(String::into_bytes),
    })
}

/// Whether the text form of a mode is one of a device, pipe or socket, which the agent's type does not tell from a file.
fn is_special(permissions: &str) -> bool {
    permissions.starts_with(['D', 'p', 'S', 'c'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: Operation = Operation::new("stat", "test");

    #[test]
    fn names_that_are_no_text_and_odd_kinds_arrive() {
        let info = EntryInfo {
            path: "/a/\u{fffd}".into(),
            path_b64: Some(bytes::Bytes::from_static(b"/a/\xff")),
            file_type: FileType::File,
            permissions: "prw-r--r--".into(),
            size: -1,
            ..EntryInfo::default()
        };
        let entry = entry(info, STAT).unwrap();
        assert_eq!((entry.path.as_bytes(), entry.kind, entry.size), (&b"/a/\xff"[..], EntryKind::Other, 0));
        let climbing = EntryInfo { path: "/a/../b".into(), ..EntryInfo::default() };
        assert!(super::entry(climbing, STAT).is_err());
    }
}
