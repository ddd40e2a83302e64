use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, openat, readlinkat, statat, symlinkat, unlinkat,
};
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
/// The first host id that a sandbox of root's may get, and the first after them.
pub(crate) const ID_RANGES: [u32; 2] = [BASE, END];
/// Host ids of a range: what a container's user data bases need.
pub(crate) const COUNT: u32 = sandbar_engine::ID_COUNT;
/// Where root's sandboxes of all data folders claim their ranges. It is empty after a boot, when no sandbox runs either.
const MACHINE: &str = "/run/sandbar/ids";
/// Longest `/etc/subuid` that is read, in bytes.
const MAX_SUBUID: u64 = 1 << 20;

impl Home {
    /// Takes a range of host ids for `id`, whose folder has to be there already, and answers its number and first id; `None` means that all
    /// are taken.
    ///
    /// A range is one sandbox's on the whole machine: it is claimed in [`MACHINE`] and noted in the data folder. Both are symbolic links,
    /// which come into being with their content, so that no crash leaves one that nobody owns.
    pub(crate) fn claim_slot(&self, id: &SandboxId) -> std::io::Result<Option<(u32, u32)>> {
        let machine = Machine::open(Path::new(MACHINE))?;
        let slots = (END - BASE) / COUNT;
        // A start at random keeps parallel creates out of each other's way.
        let random = random_bytes(4)?;
        let start = u32::from_le_bytes([random[0], random[1], random[2], random[3]]) % slots;
        self.claim_from(&machine, id, start)
    }

    fn claim_from(
        &self,
        machine: &Machine,
        id: &SandboxId,
        start: u32,
    ) -> std::io::Result<Option<(u32, u32)>> {
        let reserved = reserved()?;
        let _alone = machine.lock()?;
        for slot in (start..(END - BASE) / COUNT).chain(0..start) {
            let first = Self::slot_base(slot);
            if reserved.iter().any(|(from, count)| overlaps(*from, *count, first)) {
                continue;
            }
            if !machine.claim(slot, &self.folder_path(id))? {
                continue;
            }
            match symlinkat(id.as_str(), self, place(slot)) {
                Ok(()) => return Ok(Some((slot, first))),
                // The claim in `/run` is gone with the last boot; the files of the sandbox are not.
                Err(Errno::EXIST) if self.is_claimed(slot)? => {
                    machine.release(slot, &self.folder_path(id))?;
                }
                Err(Errno::EXIST) => {
                    found(unlinkat(self, place(slot), AtFlags::empty()))?;
                    symlinkat(id.as_str(), self, place(slot))?;
                    return Ok(Some((slot, first)));
                }
                Err(cause) => {
                    machine.release(slot, &self.folder_path(id))?;
                    return Err(cause.into());
                }
            }
        }
        Ok(None)
    }

    /// Takes a range again that is noted for `id` already: the claim in [`MACHINE`] is gone after a boot. `false` means that a sandbox of another data
    /// folder has it by now.
    pub(crate) fn reclaim_slot(&self, id: &SandboxId, slot: u32) -> std::io::Result<bool> {
        let machine = Machine::open(Path::new(MACHINE))?;
        let _alone = machine.lock()?;
        let own = self.folder_path(id);
        Ok(machine.is_of(slot, &own)? || machine.claim(slot, &own)?)
    }

    /// Gives a range of `id` back.
    pub(crate) fn release_slot(&self, id: &SandboxId, slot: u32) -> std::io::Result<()> {
        found(unlinkat(self, place(slot), AtFlags::empty()))?;
        Machine::open(Path::new(MACHINE))?.release(slot, &self.folder_path(id))
    }

    /// The ranges of `id`: for a sandbox whose record does not say.
    pub(crate) fn slots_of(&self, id: &SandboxId) -> std::io::Result<Vec<u32>> {
        let mut slots = Vec::new();
        for name in self.entries("ids")? {
            let Ok(slot) = name.parse::<u32>() else { continue };
            if found(readlinkat(self, place(slot), Vec::new()))?
                .is_some_and(|text| text.as_bytes() == id.as_str().as_bytes())
            {
                slots.push(slot);
            }
        }
        Ok(slots)
    }

    /// Whether the sandbox that a range is noted for is still there.
    fn is_claimed(&self, slot: u32) -> std::io::Result<bool> {
        let Some(text) = found(readlinkat(self, place(slot), Vec::new()))? else { return Ok(false) };
        let folder = [b"sandboxes/", text.as_bytes()].concat();
        Ok(found(statat(self, folder.as_slice(), AtFlags::SYMLINK_NOFOLLOW))?.is_some())
    }

    /// The first host id of a range.
    pub(crate) fn slot_base(slot: u32) -> u32 {
        BASE + slot * COUNT
    }
}

/// The claims of all data folders of this machine. Its links say whose a range is.
struct Machine {
    folder: OwnedFd,
}

impl Machine {
    fn open(path: &Path) -> std::io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { folder: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Alone until the answer is dropped: looking at a stale claim and taking it over is one step.
    fn lock(&self) -> std::io::Result<OwnedFd> {
        let file = openat(
            &self.folder,
            "lock",
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Claims a range for the sandbox in `owner`; `false` means that it is another's. A claim of a sandbox whose folder is gone is void.
    fn claim(&self, slot: u32, owner: &Path) -> std::io::Result<bool> {
        match symlinkat(owner, &self.folder, slot.to_string()) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            Err(cause) => return Err(cause.into()),
        }
        let other = readlinkat(&self.folder, slot.to_string(), Vec::new())?;
        match std::fs::symlink_metadata(Path::new(OsStr::from_bytes(other.as_bytes()))) {
            Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                found(unlinkat(&self.folder, slot.to_string(), AtFlags::empty()))?;
                symlinkat(owner, &self.folder, slot.to_string())?;
                Ok(true)
            }
            // What can't be looked at counts as there.
            _ => Ok(false),
        }
    }

    /// Whether a range is claimed for the sandbox in `owner`.
    fn is_of(&self, slot: u32, owner: &Path) -> std::io::Result<bool> {
        let text = found(readlinkat(&self.folder, slot.to_string(), Vec::new()))?;
        Ok(text.is_some_and(|text| text.as_bytes() == owner.as_os_str().as_bytes()))
    }

    /// Gives a claim back, if it is the one of the sandbox in `owner`.
    fn release(&self, slot: u32, owner: &Path) -> std::io::Result<()> {
        if self.is_of(slot, owner)? {
            found(unlinkat(&self.folder, slot.to_string(), AtFlags::empty()))?;
        }
        Ok(())
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

    struct Scratch {
        folder: tempfile::TempDir,
        machine: Machine,
    }

    impl Scratch {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let machine = Machine::open(&folder.path().join("run/ids")).unwrap();
            Self { folder, machine }
        }

        fn home(&self, name: &str) -> Home {
            Home::ensure(&self.folder.path().join(name)).unwrap()
        }

        /// Claims for a sandbox whose folder is there.
        fn claim(&self, home: &Home, id: &SandboxId, start: u32) -> u32 {
            std::fs::create_dir_all(home.folder_path(id)).unwrap();
            home.claim_from(&self.machine, id, start).unwrap().unwrap().0
        }
    }

    #[test]
    fn no_range_is_given_twice_whatever_the_data_folder() {
        let scratch = Scratch::new();
        let (one, two) = (scratch.home("one"), scratch.home("two"));
        let mut slots = Vec::new();
        for _ in 0..32 {
            slots.push(scratch.claim(&one, &new_id().unwrap(), 7));
            slots.push(scratch.claim(&two, &new_id().unwrap(), 7));
        }
        let all = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), all);
        assert!(slots.iter().all(|slot| (BASE..END).contains(&Home::slot_base(*slot))));
    }

    #[test]
    fn a_range_is_found_given_back_and_given_again() {
        let scratch = Scratch::new();
        let (one, two) = (scratch.home("one"), scratch.home("two"));
        let id = new_id().unwrap();
        let slot = scratch.claim(&one, &id, 9);
        assert_eq!(one.slots_of(&id).unwrap(), [slot]);
        // Not the owner, no effect.
        scratch.machine.release(slot, &two.folder_path(&id)).unwrap();
        assert_ne!(scratch.claim(&two, &new_id().unwrap(), 9), slot);
        unlinkat(&one, place(slot), AtFlags::empty()).unwrap();
        scratch.machine.release(slot, &one.folder_path(&id)).unwrap();
        assert!(one.slots_of(&id).unwrap().is_empty());
        assert_eq!(scratch.claim(&two, &new_id().unwrap(), 9), slot);
    }

    #[test]
    fn a_claim_without_its_sandbox_is_void_and_one_with_it_survives_a_boot() {
        let scratch = Scratch::new();
        let home = scratch.home("one");
        let (gone, stopped, new) = (new_id().unwrap(), new_id().unwrap(), new_id().unwrap());
        assert_eq!(scratch.claim(&home, &gone, 3), 3);
        assert_eq!(scratch.claim(&home, &stopped, 4), 4);
        std::fs::remove_dir(home.folder_path(&gone)).unwrap();
        assert_eq!(scratch.claim(&home, &new, 3), 3);
        assert!(home.slots_of(&gone).unwrap().is_empty());
        let after_boot =
            Scratch { machine: Machine::open(&scratch.folder.path().join("run/again")).unwrap(), ..scratch };
        assert_ne!(after_boot.claim(&home, &new_id().unwrap(), 4), 4);
    }

    #[test]
    fn ranges_of_users_are_left_out() {
        assert_eq!(parse("a:100000:65536\n# x\nbad\nb:1879048192:1\n"), [(100_000, 65_536), (BASE, 1)]);
        assert!(overlaps(BASE, 1, BASE) && overlaps(BASE - 1, 2, BASE) && overlaps(0, u32::MAX, BASE));
        assert!(!overlaps(BASE - 1, 1, BASE) && !overlaps(BASE + COUNT, 1, BASE));
    }
}
