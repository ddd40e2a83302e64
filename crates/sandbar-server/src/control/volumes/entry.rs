use jiff::Timestamp;
use sandbar_wire::e2b::VolumeEntry;

/// What `find` is to print of an entry, for [`parse`].
pub(super) const FORMAT: &str = "%y\\0%s\\0%m\\0%U\\0%G\\0%A@\\0%T@\\0%C@\\0%l\\0%P\\0";

const FIELDS: usize = 10;

/// Reads what `find` printed of entries at or below `at`, which is a path from the root of the volume.
pub(super) fn parse(printed: &[u8], at: &str) -> Option<Vec<VolumeEntry>> {
    let mut fields: Vec<_> = printed.split(|byte| *byte == 0).collect();
    // After the last NUL there is nothing.
    if fields.pop() != Some(b"".as_slice()) || fields.len() % FIELDS != 0 {
        return None;
    }
    let mut entries =
        fields.chunks_exact(FIELDS).map(|fields| entry(fields, at)).collect::<Option<Vec<_>>>()?;
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    Some(entries)
}

fn entry(fields: &[&[u8]], at: &str) -> Option<VolumeEntry> {
    let text = |index: usize| String::from_utf8_lossy(fields[index]).into_owned();
    let below = text(9);
    let at = at.trim_end_matches('/');
    let path = match (at, below.as_str()) {
        ("", "") => "/".to_owned(),
        (at, "") => at.to_owned(),
        (at, below) => format!("{at}/{below}"),
    };
    let kind = match fields[0] {
        b"f" => "file",
        b"d" => "directory",
        b"l" => "symlink",
        _ => "unknown",
    };
    Some(VolumeEntry {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        kind: kind.to_owned(),
        path,
        size: text(1).parse().ok()?,
        mode: u32::from_str_radix(&text(2), 8).ok()?,
        uid: text(3).parse().ok()?,
        gid: text(4).parse().ok()?,
        atime: time(&text(5))?,
        mtime: time(&text(6))?,
        ctime: time(&text(7))?,
        target: (kind == "symlink").then(|| text(8)),
    })
}

/// Seconds since 1970 with a fraction, as RFC 3339 with microseconds.
fn time(text: &str) -> Option<String> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let at = Timestamp::new(seconds.parse().ok()?, digits.parse().ok()?).ok()?;
    Some(format!("{at:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_find_prints_is_read() {
        let printed = b"f\x003\x00644\x001000\x001000\x001.5000000000\x002.0\x003\x00\x00b\x00l\x001\x00777\x000\x000\x001.0\x001.0\x001.0\x00../x\x00a\x00";
        let entries = parse(printed, "/dir").unwrap();
        assert_eq!(entries[0].path, "/dir/a");
        assert_eq!((entries[0].kind.as_str(), entries[0].target.as_deref()), ("symlink", Some("../x")));
        assert_eq!((entries[1].name.as_str(), entries[1].size, entries[1].mode), ("b", 3, 0o644));
        assert_eq!(entries[1].atime, "1970-01-01T00:00:01.500000Z");
        assert_eq!(parse(b"", "/").unwrap(), []);
        assert!(parse(b"f\x003\x00", "/").is_none());
        assert!(parse(b"f", "/").is_none());
    }

    #[test]
    fn the_root_is_itself() {
        let printed = b"d\x003\x00755\x000\x000\x001\x001\x001\x00\x00\x00";
        let entries = parse(printed, "/").unwrap();
        assert_eq!((entries[0].path.as_str(), entries[0].name.as_str()), ("/", ""));
    }
}
