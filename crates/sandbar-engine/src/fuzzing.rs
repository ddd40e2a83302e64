//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::{Component, PathBuf};

use crate::{cgroup, host, proc_id, process, seccomp, usage};

/// Fields 7 to 21 of a process.
const FIELDS: &[u8] = b"7 8 9 10 11 12 13 14 15 16 17 18 19 20 21";

/// Lines of `/proc/<pid>/stat`: the first line is the name of a process, the rest is anything. What stands in the name
/// changes nothing.
pub fn process_lines(data: &[u8]) {
    let _ = (proc_id::fuzzing::parsed(data), process::fuzzing::parsed(data));
    let name: Vec<u8> = data.iter().copied().take(15).collect();
    let line = [b"7 (", name.as_slice(), b") S 3 4 5 ", FIELDS, b" 4242 23\n"].concat();
    assert_eq!(proc_id::fuzzing::parsed(&line), Some((b'S', 4242)));
    assert_eq!(process::fuzzing::parsed(&line), Some((3, 5, false)));
}

/// Names in `/proc` and the table of System V segments.
pub fn usage_text(data: &[u8]) {
    if let Ok(name) = CString::new(data)
        && let Some(number) = usage::fuzzing::number(&name)
    {
        assert_eq!(number.to_string().as_bytes(), data, "a number has one name");
    }
    let total = usage::fuzzing::segments(data);
    let padded = [data, b"\n", data, b"\n"].concat();
    assert!(usage::fuzzing::segments(&padded) >= total);
}

/// `mountinfo` and `/proc/self/cgroup`, with an empty line between them. Groups are only made where a hierarchy is mounted.
pub fn cgroup_tables(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mounts, own) = text.split_once("\n\n").unwrap_or((&text, ""));
    for is_root in [true, false] {
        let looked: RefCell<Vec<PathBuf>> = RefCell::default();
        let writable = |path: &std::path::Path| {
            looked.borrow_mut().push(path.to_owned());
            !path.as_os_str().len().is_multiple_of(3)
        };
        let layout = cgroup::Layout::from_tables(mounts, own, is_root, &writable);
        assert_eq!(layout.name() == "none", layout.lack.is_some());
        for parent in layout.parents() {
            assert!(looked.borrow().iter().any(|path| path == parent), "{} is writable", parent.display());
            let climbs = parent.components().any(|part| part == Component::ParentDir);
            assert!(parent.is_absolute() && !climbs, "{}", parent.display());
        }
    }
}

/// `/etc/subuid`, `/etc/subgid` and `/etc/passwd`, with an empty line between them. A range is whole, and the user's.
pub fn subordinate_ids(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut files = text.splitn(3, "\n\n");
    let (uids, gids) = (files.next().unwrap_or_default(), files.next().unwrap_or_default());
    let passwd = files.next().unwrap_or_default();
    let Some(ids) = host::fuzzing::subordinate(uids, gids, passwd, 1001) else { return };
    assert!((crate::USER_ID..crate::ID_COUNT).contains(&ids.count));
    for (base, file) in [(ids.uid_base, uids), (ids.gid_base, gids)] {
        assert!(base.checked_add(ids.count).is_some());
        assert!(base > 0, "the host's root is nobody's");
        assert!(file.contains(&base.to_string()));
    }
}

/// System calls: the assembled filter answers what the table says.
pub fn system_calls(data: &[u8]) {
    seccomp::fuzzing::filter(data);
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(process_lines, usage_text, cgroup_tables, subordinate_ids, system_calls);
}
