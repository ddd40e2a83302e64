//! A listing by a command inside, for folders with names that the agent has no words for.

use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{EntryKind, Error, ExitStatus, FileEntry, Files, GuestPath, ListOptions, Result};

use super::EnvdClient;
use super::files::text;
use super::script::Script;
use crate::operation::Operation;

/// How long a listing may take.
const BOUND: Duration = Duration::from_secs(60);
/// Most bytes of a listing.
const MOST: usize = 64 << 20;
/// Fields of an entry in what [`FIND`] prints.
const FIELDS: usize = 8;
/// Prints what is in `$1`, `$2` levels down.
const FIND: &str =
    r#"exec find "$1/" -mindepth 1 -maxdepth "$2" -printf '%p\0%y\0%Y\0%s\0%m\0%u\0%g\0%T@\0'"#;

impl EnvdClient {
    pub(super) async fn list_inside(
        &self,
        path: &GuestPath,
        options: ListOptions,
        operation: Operation,
    ) -> Result<Vec<FileEntry>> {
        let folder = text(path, operation)?.trim_end_matches('/').to_owned();
        let script = Script::new(FIND, vec![folder, options.depth.to_string()], BOUND).with_kept(MOST);
        let done = self.script(script, operation).await?;
        if done.status != ExitStatus::Code(0) || done.stdout.len() >= MOST {
            return Err(done.failed("list it inside", operation).with_resource(format!("`{path}`")));
        }
        let nonsense = |why: &str| crate::fault::nonsense(operation, &why);
        let mut entries = Vec::new();
        for (is_link, entry) in read(&done.stdout).map_err(|()| nonsense("a listing that is none"))? {
            // A link is as what it leads to, which the agent tells of what has a name.
            match (is_link, entry.path.to_str()) {
                (true, Some(_)) => entries.extend(self.guest.stat(&entry.path).await?),
                (true, None) => {
                    return Err(Error::unsupported(
                        operation.name,
                        "a link whose name is not UTF-8",
                        "where it leads can't be asked of the sandbox' agent",
                    )
                    .with_backend(operation.backend)
                    .with_resource(format!("`{}`", entry.path)));
                }
                (false, _) => entries.push(entry),
            }
        }
        Ok(entries)
    }
}

/// Reads what [`FIND`] prints: entries, and whether they are links.
pub(super) fn read(text: &[u8]) -> std::result::Result<Vec<(bool, FileEntry)>, ()> {
    let Some(text) = text.strip_suffix(b"\0") else {
        return if text.is_empty() { Ok(Vec::new()) } else { Err(()) };
    };
    let fields: Vec<&[u8]> = text.split(|byte| *byte == 0).collect();
    if !fields.len().is_multiple_of(FIELDS) {
        return Err(());
    }
    fields.chunks(FIELDS).map(entry).collect()
}

fn entry(fields: &[&[u8]]) -> std::result::Result<(bool, FileEntry), ()> {
    let [path, own, kind, size, mode, owner, group, modified] = fields else { return Err(()) };
    let words = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ());
    let mode = u32::from_str_radix(&words(mode)?, 8).map_err(|_| ())?;
    let entry = FileEntry {
        path: GuestPath::new(path).map_err(|_| ())?,
        kind: match *kind {
            b"f" => EntryKind::File,
            b"d" => EntryKind::Directory,
            _ => EntryKind::Other,
        },
        size: words(size)?.parse().map_err(|_| ())?,
        mode: mode & 0o7777,
        owner: words(owner)?,
        group: words(group)?,
        modified: time(&words(modified)?),
        link_target: None,
    };
    Ok((*own == b"l", entry))
}

/// Seconds since 1970 with a fraction.
fn time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Timestamp::new(seconds.parse().ok()?, nanos.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_listing_is_read() {
        let text = b"/d/a\xff\nb\0f\0f\x005\x00644\0user\x001000\x001700000000.2500000000\0/d/l\0l\0d\x003\x00777\0user\0user\x000.0\0";
        let entries = read(text).unwrap();
        assert_eq!(entries[0].1.path.as_bytes(), b"/d/a\xff\nb");
        assert_eq!((entries[0].1.size, entries[0].1.mode, entries[0].1.kind), (5, 0o644, EntryKind::File));
        assert_eq!(entries[0].1.modified, Timestamp::new(1_700_000_000, 250_000_000).ok());
        assert!(entries[1].0 && entries[1].1.kind == EntryKind::Directory);
        assert!(read(b"").unwrap().is_empty());
        assert!(read(b"/d/a\0f\0").is_err() && read(b"/d/a").is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = time(&String::from_utf8_lossy(&bytes));
        }
    }
}
