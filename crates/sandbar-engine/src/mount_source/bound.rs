use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The sockets of this network namespace that have a name in the file system, whatever their type: one that takes
/// datagrams obeys strangers as well as one that listens.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// Where those are whose names say it.
    pub(super) paths: Vec<PathBuf>,
    /// There are others: names relative to some process's folder or descriptor, of another mount namespace, or removed.
    pub(super) elsewhere: bool,
}

impl Bound {
    pub(super) fn observe() -> Self {
        // Without the table nothing is known, so anything may be anywhere.
        let Ok(table) = std::fs::read("/proc/net/unix") else {
            return Self { paths: Vec::new(), elsewhere: true };
        };
        let mut bound = Self::default();
        for line in table.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty()) {
            match name(line) {
                Some(name) => bound.add(name),
                // The rest of a name that holds a line break.
                None => bound.elsewhere = true,
            }
        }
        bound
    }

    fn add(&mut self, name: &[u8]) {
        // No name, or one outside the file system. (A relative name that starts with this sign looks the same.)
        if name.is_empty() || name[0] == b'@' {
            return;
        }
        let path = Path::new(OsStr::from_bytes(name));
        // What is in `/proc` depends on who looks.
        if !path.is_absolute() || path.starts_with("/proc") {
            self.elsewhere = true;
            return;
        }
        let found = std::fs::canonicalize(path)
            .and_then(|real| Ok((std::fs::symlink_metadata(&real)?.file_type().is_socket(), real)));
        match found {
            Ok((true, real)) => self.paths.push(real),
            // This process may not look there; the name itself says where that is.
            Err(cause) if cause.kind() == ErrorKind::PermissionDenied => self.paths.push(path.to_owned()),
            Ok((false, _)) | Err(_) => self.elsewhere = true,
        }
    }
}

/// The name in a line of the table: address, five numbers in hexadecimal, the inode number, and the rest.
fn name(line: &[u8]) -> Option<&[u8]> {
    let (address, mut rest) = split(line)?;
    let number = |field: &[u8], radix| {
        std::str::from_utf8(field).is_ok_and(|text| u64::from_str_radix(text, radix).is_ok())
    };
    if !number(address.strip_suffix(b":")?, 16) {
        return None;
    }
    for radix in [16, 16, 16, 16, 16, 10] {
        let (field, after) = split(rest)?;
        if !number(field, radix) {
            return None;
        }
        rest = after;
    }
    Some(rest)
}

/// A field and what follows the one blank after it.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = line.iter().position(|byte| *byte != b' ')?;
    let line = &line[start..];
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    Some((&line[..end], line.get(end + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_table() {
        let line = |rest: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 {rest}");
        for (rest, wanted) in [
            ("  123 /run/a b.sock", "/run/a b.sock"),
            ("98765432 relative", "relative"),
            ("1 @abstract", "@abstract"),
            ("12345", ""),
        ] {
            assert_eq!(name(line(rest).as_bytes()), Some(wanted.as_bytes()), "{rest}");
        }
        for broken in ["x.sock", "/run/second line of a name", "0000: 1 2 3"] {
            assert_eq!(name(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn what_names_say() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        let path = real.join("s");
        let _socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        let look = |name: &[u8]| {
            let mut bound = Bound::default();
            bound.add(name);
            (bound.paths, bound.elsewhere)
        };
        assert_eq!(look(path.as_os_str().as_bytes()), (vec![path.clone()], false));
        assert_eq!(look(b""), (Vec::new(), false));
        assert_eq!(look(b"@abstract"), (Vec::new(), false));
        let gone = real.join("gone");
        let file = real.join("file");
        for elsewhere in [
            b"s".as_slice(),
            b"/proc/self/fd/6/agent.sock",
            gone.as_os_str().as_bytes(),
            file.as_os_str().as_bytes(),
        ] {
            assert_eq!(look(elsewhere), (Vec::new(), true));
        }
    }
}
