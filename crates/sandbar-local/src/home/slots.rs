use std::io::Write;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use sandbar_core::SandboxId;

use super::Home;
use crate::error::found;
use crate::id::random_bytes;

/// First host id of the ranges that sandboxes of root get: 0x70000000, where systemd's table of ids (`UIDS-GIDS.md`) has nothing up to
/// [`END`], above what its containers take and below what some programs read as negative.
const BASE: u32 = 0x7000_0000;
/// First host id after the ranges: systemd's foreign ids start at 0x7FFE0000.
const END: u32 = 0x7ffe_0000;
/// Host ids of a range: what a container's user data bases need.
pub(crate) const COUNT: u32 = sandbar_engine::ID_COUNT;
/// Longest `/etc/subuid` that is read, in bytes.
const MAX_SUBUID: u64 = 1 << 20;

impl Home {
    /// Takes a range of host ids for `id` and answers its number and first id; `None` means that all are taken.
    pub(crate) fn claim_slot(&self, id: &SandboxId) -> std::io::Result<Option<(u32, u32)>> {
        let reserved = reserved()?;
        let slots = (END - BASE) / COUNT;
        // A start at random keeps parallel creates, and other data folders of this machine, out of each other's way.
        let random = random_bytes(4)?;
        let start = u32::from_le_bytes([random[0], random[1], random[2], random[3]]) % slots;
        for slot in (start..slots).chain(0..start) {
            let first = BASE + slot * COUNT;
            if reserved.iter().any(|(from, count)| overlaps(*from, *count, first)) {
                continue;
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match openat(self, place(slot), flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    if let Err(cause) = std::fs::File::from(file).write_all(id.as_str().as_bytes()) {
                        self.release_slot(slot)?;
                        return Err(cause);
                    }
                    return Ok(Some((slot, first)));
                }
                Err(Errno::EXIST) => {}
                Err(cause) => return Err(cause.into()),
            }
        }
        Ok(None)
    }

    /// Gives a range back.
    pub(crate) fn release_slot(&self, slot: u32) -> rustix::io::Result<()> {
        found(unlinkat(self, place(slot), AtFlags::empty())).map(|_| ())
    }

    /// The ranges of `id`: for a sandbox whose record does not say.
    pub(crate) fn slots_of(&self, id: &SandboxId) -> std::io::Result<Vec<u32>> {
        let mut slots = Vec::new();
        for name in self.entries("ids")? {
            let Ok(slot) = name.parse::<u32>() else { continue };
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let Some(file) = found(openat(self, place(slot), flags, Mode::empty()))? else { continue };
            let mut text = [0; 256];
            let length = rustix::io::read(&file, &mut text)?;
            if &text[..length] == id.as_str().as_bytes() {
                slots.push(slot);
            }
        }
        Ok(slots)
    }

    /// The first host id of a range.
    pub(crate) fn slot_base(slot: u32) -> u32 {
        BASE + slot * COUNT
    }
}

fn place(slot: u32) -> String {
    format!("ids/{slot}")
}

/// Ranges that the machine gives to users.
fn reserved() -> std::io::Result<Vec<(u32, u32)>> {
    let mut ranges = Vec::new();
    for path in ["/etc/subuid", "/etc/subgid"] {
        match std::fs::metadata(path) {
            Ok(meta) if meta.len() > MAX_SUBUID => {
                return Err(std::io::Error::other(format!("`{path}` is larger than {MAX_SUBUID} bytes")));
            }
            Ok(_) => ranges.extend(parse(&std::fs::read_to_string(path)?)),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(ranges)
}

/// Reads `name:first:count` lines; others are passed over, as `newuidmap` does.
fn parse(text: &str) -> Vec<(u32, u32)> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(1);
            Some((fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?))
        })
        .collect()
}

fn overlaps(from: u32, count: u32, first: u32) -> bool {
    let (from, count, first) = (u64::from(from), u64::from(count), u64::from(first));
    from < first + u64::from(COUNT) && first < from + count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::new_id;

    #[test]
    fn ranges_are_exclusive_and_given_back() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let id = new_id().unwrap();
        let mut bases: Vec<_> = (0..64).map(|_| home.claim_slot(&id).unwrap().unwrap()).collect();
        assert_eq!(home.slots_of(&id).unwrap().len(), 64);
        bases.sort_unstable();
        bases.dedup();
        assert_eq!(bases.len(), 64);
        for (slot, base) in bases {
            assert_eq!(Home::slot_base(slot), base);
            assert!((BASE..END).contains(&base) && base % COUNT == 0);
            home.release_slot(slot).unwrap();
        }
        assert!(home.slots_of(&id).unwrap().is_empty());
    }

    #[test]
    fn ranges_of_users_are_left_out() {
        assert_eq!(parse("a:100000:65536\n# x\nbad\nb:1879048192:1\n"), [(100_000, 65_536), (BASE, 1)]);
        assert!(overlaps(BASE, 1, BASE) && overlaps(BASE - 1, 2, BASE) && overlaps(0, u32::MAX, BASE));
        assert!(!overlaps(BASE - 1, 1, BASE) && !overlaps(BASE + COUNT, 1, BASE));
    }
}
