use sandbar_core::{ErrorKind, GuestPath, Result};

use crate::error::{fail, unknown};
use crate::home::{Folder, StoredRecord};

const COMMIT: &str = "commit";
/// Mounts of every sandbox: its root, the host's programs, and the kernel's own.
const OWN: &[&str] = &["/", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Folders below which everything is the kernel's or the agent's.
const OWN_TREES: &[&str] = &["/proc", "/sys", "/dev", "/run"];
/// Longest list of mounts that is read, in bytes: a sandbox has some dozens.
const MAX_LIST: u64 = 4 << 20;

/// Where something else is mounted in a sandbox: folders of the host, and volumes. As the kernel has it, whatever anybody inside says.
pub(super) fn mounted(folder: &Folder, record: &StoredRecord) -> Result<Vec<GuestPath>> {
    let blind = |cause: &dyn std::fmt::Display| {
        unknown(COMMIT, folder.id().as_str(), format!("its mounts can't be seen: {cause}"))
    };
    let mark = record.private.agent.as_ref();
    let pid = mark.map(crate::home::AgentMark::pid).transpose().map_err(|cause| blind(&cause))?.flatten();
    let (Some(mark), Some(pid)) = (mark, pid) else { return Err(stopped(folder)) };
    let path = format!("/proc/{}/mountinfo", pid.as_raw_nonzero());
    let read = || -> std::io::Result<Vec<u8>> {
        use std::io::Read as _;
        let mut text = Vec::new();
        std::fs::File::open(&path)?.take(MAX_LIST).read_to_end(&mut text)?;
        Ok(text)
    };
    let text = read();
    // The number was its own as long as it lives after the look.
    if !mark.lives().map_err(|cause| blind(&cause))? {
        return Err(stopped(folder));
    }
    let text = text.map_err(|cause| blind(&cause))?;
    if text.len() as u64 == MAX_LIST {
        return Err(blind(&"there are too many"));
    }
    parse(&text).map_err(|why| blind(&why))
}

fn stopped(folder: &Folder) -> sandbar_core::Error {
    let why =
        format!("sandbox `{}` is stopped, and what was mounted in it can't be seen any more", folder.id());
    fail(ErrorKind::Conflict, COMMIT, why).with_hint("commit it without capture paths, or start it first")
}

fn parse(text: &[u8]) -> std::result::Result<Vec<GuestPath>, String> {
    let mut places = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let place = line.split(|byte| *byte == b' ').nth(4).ok_or("a line has no mount point")?;
        let place = GuestPath::new(unescaped(place)).map_err(|error| error.message().to_owned())?;
        let is_own = OWN.iter().any(|own| place.as_bytes() == own.as_bytes())
            || OWN_TREES.iter().any(|own| {
                let rest = place.as_bytes().strip_prefix(own.as_bytes());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            });
        if !is_own {
            places.push(place);
        }
    }
    Ok(places)
}

/// The kernel writes blanks, line ends and backslashes as three octal digits.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let digits = after
            .get(..3)
            .filter(|digits| *byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = digits {
            let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value & 0xff).unwrap_or_default());
            rest = &after[3..];
        } else {
            bytes.push(*byte);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_sandbox_own_is_found_whatever_its_name() {
        let text = b"1 0 0:1 / / rw - overlay o rw\n2 1 0:2 / /usr rw - overlay o rw\n3 1 0:3 / /proc/keys ro - tmpfs t rw\n\
            4 1 8:1 /a /mnt/with\\040blank\\134 rw - ext4 d rw\n5 1 8:1 /b /procession ro - ext4 d rw\n";
        let places: Vec<_> = parse(text).unwrap().iter().map(|place| place.as_bytes().to_vec()).collect();
        assert_eq!(places, [b"/mnt/with blank\\".to_vec(), b"/procession".to_vec()]);
        assert!(parse(b"1 0\n").is_err());
    }
}
