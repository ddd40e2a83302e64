use crate::ArchiveError;
use crate::read::header::{Kind, Member};

/// What long names and extended headers said about the next member.
#[derive(Debug, Default)]
pub(crate) struct Extended {
    /// Bytes of headers that were taken for it.
    pub(crate) taken: u64,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    long_path: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    mtime: Option<(i64, u32)>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The prefix of keys that hold extended attributes, by star, GNU tar and bsdtar.
const XATTR: &[u8] = b"SCHILY.xattr.";

impl Extended {
    /// Nothing came for the next member.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// GNU's long name.
    pub(crate) fn long_path(&mut self, body: &[u8]) {
        self.long_path = Some(until_nul(body));
    }

    /// GNU's long link target.
    pub(crate) fn long_link(&mut self, body: &[u8]) {
        self.long_link = Some(until_nul(body));
    }

    /// A header of POSIX for the next member.
    pub(crate) fn records(&mut self, body: &[u8]) -> Result<(), ArchiveError> {
        for record in Records(body) {
            let (key, value) = record?;
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(decimal(value)?),
                b"uid" => self.uid = Some(decimal(value)?),
                b"gid" => self.gid = Some(decimal(value)?),
                b"mtime" => self.mtime = Some(time(value)?),
                _ if key.starts_with(b"GNU.sparse.") => {
                    let text = "a member is sparse in GNU tar's own form, which is not read: pack it without `--sparse`";
                    let error = ArchiveError::refused(text);
                    return Err(match &self.path {
                        Some(path) => error.of(path),
                        None => error,
                    });
                }
                _ => {
                    if let Some(name) = key.strip_prefix(XATTR) {
                        self.xattrs.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    /// What the member is, with what came before it. The size is of what follows.
    pub(crate) fn apply(self, member: &mut Member, size: &mut u64) {
        // POSIX' form goes before GNU's, which goes before the header's own.
        if let Some(path) = self.path.or(self.long_path) {
            member.path = path;
        }
        if let Some(real) = self.size {
            *size = real;
        }
        match &mut member.kind {
            Kind::Symlink(target) | Kind::HardLink(target) => {
                if let Some(link) = self.link.or(self.long_link) {
                    *target = link;
                }
            }
            Kind::File(of) => *of = *size,
            _ => {}
        }
        member.uid = self.uid.unwrap_or(member.uid);
        member.gid = self.gid.unwrap_or(member.gid);
        member.mtime = self.mtime.unwrap_or(member.mtime);
        member.xattrs = self.xattrs;
    }
}

/// A header of POSIX for all members after it: only what says nothing of them is taken.
pub(crate) fn check_global(body: &[u8]) -> Result<(), ArchiveError> {
    for record in Records(body) {
        let (key, _) = record?;
        let known = [&b"path"[..], b"linkpath", b"size", b"uid", b"gid", b"mtime"].contains(&key);
        if known || key.starts_with(XATTR) || key.starts_with(b"GNU.sparse.") {
            let text = format!(
                "a header for the whole archive sets `{}`, which is one member's",
                key.escape_ascii()
            );
            return Err(ArchiveError::refused(text));
        }
    }
    Ok(())
}

/// Records of the form `LENGTH KEY=VALUE\n`, where the length counts all of it.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((key, value, rest)) = record(self.0) else {
            self.0 = &[];
            return Some(Err(malformed()));
        };
        self.0 = rest;
        Some(Ok((key, value)))
    }
}

fn record(body: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = body.iter().position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(&body[..space]).ok()?).ok()?;
    if length > body.len() || length < space + 2 || body[length - 1] != b'\n' {
        return None;
    }
    let record = &body[space + 1..length - 1];
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], &body[length..]))
}

fn decimal(digits: &[u8]) -> Result<u64, ArchiveError> {
    // `parse` alone would take a sign.
    let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        // What does not fit into a time or an offset of the kernel is no number of a file.
        .filter(|number| i64::try_from(*number).is_ok())
        .ok_or_else(malformed)
}

/// Seconds with a fraction, which may be before 1970.
fn time(value: &[u8]) -> Result<(i64, u32), ArchiveError> {
    let (negative, value) = match value.strip_prefix(b"-") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let mut parts = value.splitn(2, |byte| *byte == b'.');
    let seconds = i64::try_from(decimal(parts.next().unwrap_or_default())?).map_err(|_| malformed())?;
    let mut nanoseconds = 0;
    let mut unit = 100_000_000;
    for digit in parts.next().unwrap_or_default() {
        if !digit.is_ascii_digit() {
            return Err(malformed());
        }
        nanoseconds += u32::from(digit - b'0') * unit;
        unit /= 10;
    }
    Ok(match (negative, nanoseconds) {
        (false, _) => (seconds, nanoseconds),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - nanoseconds),
    })
}

fn until_nul(body: &[u8]) -> Vec<u8> {
    body.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn malformed() -> ArchiveError {
    ArchiveError::malformed("an extended header is malformed")
}
