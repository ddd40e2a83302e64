//! Names that have an address in a sandbox, as they stand on disk: one JSON object a line, in the order in which they were given.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags, openat};
use sandbar_egress::{Assignment, Journal};

use super::Folder;

/// The file. It only grows: an address is never given twice.
const NAMES: &str = "egress-names.jsonl";
/// Longest file that is read, in bytes: as many names as there are addresses, at their longest.
const MAX_NAMES: u64 = 64 << 20;

/// The writing end, which only the holder of the sandbox' lock has.
#[derive(Debug)]
pub(crate) struct AssignedNames(Mutex<File>);

impl AssignedNames {
    /// Opens the file, and makes it where there is none; with what stands in it. A line that a killed writer left unfinished was answered to nobody, and
    /// is taken off.
    pub(crate) fn open(folder: &Folder) -> io::Result<(Self, Vec<Assignment>)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(folder, NAMES, flags, Mode::RUSR | Mode::WUSR)?);
        let mut bytes = Vec::new();
        (&file).take(MAX_NAMES).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        // One that can't be read is an error: its address would be given to another name.
        let assigned = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
        Ok((Self(Mutex::new(file)), assigned))
    }
}

impl Journal for AssignedNames {
    fn assigned(&self, assignment: &Assignment) -> io::Result<()> {
        let mut line = serde_json::to_vec(assignment)?;
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = file.metadata()?.len();
        file.write_all(&line).inspect_err(|_| {
            // No half of a line: the next one would be lost with it.
            let _ = file.set_len(before);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    #[test]
    fn names_are_read_back_in_order_without_what_was_torn() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let (folder, _lock) = Folder::create(&home, &"a1".parse().unwrap()).unwrap().unwrap();
        let given = |name: &str, last: u8| Assignment {
            name: name.parse().unwrap(),
            address: [198, 18, 1, last].into(),
        };
        let (names, assigned) = AssignedNames::open(&folder).unwrap();
        assert!(assigned.is_empty());
        names.assigned(&given("a.test", 0)).unwrap();
        names.assigned(&given("b.test", 1)).unwrap();
        names.0.lock().unwrap().write_all(b"{\"name\":\"c").unwrap();
        let (names, assigned) = AssignedNames::open(&folder).unwrap();
        assert_eq!(assigned, [given("a.test", 0), given("b.test", 1)]);
        names.0.lock().unwrap().write_all(b"nonsense\n").unwrap();
        assert!(AssignedNames::open(&folder).is_err());
    }
}
