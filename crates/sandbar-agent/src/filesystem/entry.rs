use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use sandbar_wire::envd::{
    EntryInfo, FileType, METADATA_TOTAL_MAX, METADATA_XATTR_PREFIX, RpcError, Timestamp,
};

use super::Context;
use super::error::failed;
use crate::paths;
use crate::users::Names;

/// Largest list of attribute names, in bytes (the kernel's own limit).
const XATTR_LIST_MAX: usize = 64 << 10;

/// Describes one entry.
pub(crate) fn stat(context: &Context, path: &Path) -> Result<EntryInfo, RpcError> {
    let names = Names::load(&context.etc);
    describe(&names, path).map_err(|error| failed("stat", path, &error))
}

/// Describes an entry. A symbolic link is described by its target, whose path is resolved.
pub(super) fn describe(names: &Names, path: &Path) -> io::Result<EntryInfo> {
    let own = fs::symlink_metadata(path)?;
    let is_link = own.file_type().is_symlink();
    let (meta, target) = if is_link {
        match fs::canonicalize(path) {
            Ok(target) => (fs::metadata(path).ok(), Some(target)),
            Err(_) => (None, Some(path.to_owned())),
        }
    } else {
        (Some(own.clone()), None)
    };
    let file_type = match &meta {
        Some(meta) if meta.is_dir() => FileType::Directory,
        Some(_) => FileType::File,
        None => FileType::Unspecified,
    };
    let shown = meta.as_ref().unwrap_or(&own);
    let (name, name_b64) = paths::text(path.file_name().unwrap_or(path.as_os_str()));
    let (text, path_b64) = paths::text(path.as_os_str());
    let has_metadata = meta.as_ref().is_some_and(fs::Metadata::is_file);
    Ok(EntryInfo {
        name,
        file_type,
        path: text,
        size: i64::try_from(shown.len()).unwrap_or(i64::MAX),
        mode: shown.mode() & 0o777,
        permissions: permissions(&own),
        owner: names.user(shown.uid()),
        group: names.group(shown.gid()),
        modified_time: Some(Timestamp {
            seconds: shown.mtime(),
            nanos: u32::try_from(shown.mtime_nsec()).unwrap_or_default(),
        }),
        symlink_target: target.map(|target| target.to_string_lossy().into_owned()),
        metadata: if has_metadata { metadata(path) } else { BTreeMap::new() },
        name_b64,
        path_b64,
    })
}

/// A mode as Go prints it.
fn permissions(meta: &fs::Metadata) -> String {
    let kind = meta.file_type();
    let mut text = String::with_capacity(12);
    let mode = meta.mode();
    let flags = [
        (kind.is_dir(), 'd'),
        (kind.is_symlink(), 'L'),
        (kind.is_block_device() || kind.is_char_device(), 'D'),
        (kind.is_fifo(), 'p'),
        (kind.is_socket(), 'S'),
        (mode & 0o4000 != 0, 'u'),
        (mode & 0o2000 != 0, 'g'),
        (kind.is_char_device(), 'c'),
        (mode & 0o1000 != 0, 't'),
    ];
    text.extend(flags.iter().filter(|(set, _)| *set).map(|(_, letter)| letter));
    if text.is_empty() {
        text.push('-');
    }
    text.extend(
        "rwxrwxrwx".chars().enumerate().map(|(at, c)| if mode & (0o400 >> at) == 0 { '-' } else { c }),
    );
    text
}

/// What was uploaded with a file. A file system without attributes has none.
pub(crate) fn metadata(path: &Path) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    for name in attribute_names(path) {
        let Some(key) = name.strip_prefix(METADATA_XATTR_PREFIX) else { continue };
        let mut value = [0; METADATA_TOTAL_MAX];
        if let Ok(length) = rustix::fs::getxattr(path, name.as_str(), &mut value) {
            metadata.insert(key.to_owned(), String::from_utf8_lossy(&value[..length]).into_owned());
        }
    }
    metadata
}

/// Names of a file's attributes that can be written as text.
pub(super) fn attribute_names(path: &Path) -> Vec<String> {
    // Most files have none, which this finds out without a buffer.
    let Ok(size @ 1..) = rustix::fs::listxattr_query(path) else { return Vec::new() };
    let mut list = vec![0; size.min(XATTR_LIST_MAX)];
    let Ok(length) = rustix::fs::listxattr(path, &mut list) else { return Vec::new() };
    list[..length].split(|byte| *byte == 0).filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn links_show_their_target() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("f"), "12345").unwrap();
        fs::set_permissions(at("f"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("f", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        let names = Names::default();
        let file = describe(&names, &at("f")).unwrap();
        assert_eq!((file.size, file.mode, file.permissions.as_str()), (5, 0o640, "-rw-r-----"));
        let link = describe(&names, &at("link")).unwrap();
        assert_eq!((link.file_type, link.size, link.permissions.as_str()), (FileType::File, 5, "Lrwxrwxrwx"));
        assert_eq!(link.symlink_target, fs::canonicalize(at("f")).unwrap().to_str().map(str::to_owned));
        for name in ["dangling", "loop"] {
            let entry = describe(&names, &at(name)).unwrap();
            assert_eq!(entry.file_type, FileType::Unspecified);
            assert_eq!(entry.symlink_target.as_deref(), at(name).to_str());
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1750)).unwrap();
        let folder = describe(&names, folder.path()).unwrap();
        assert_eq!((folder.file_type, folder.permissions.as_str()), (FileType::Directory, "dtrwxr-x---"));
    }
}
