use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write as _};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use tar::{Archive, Builder, EntryType, Header};

use super::order::Copy;

/// Most bytes of files that a step copies: as many as the largest archive has.
const MAX_BYTES: u64 = super::upload::MAX_UPLOAD;

/// Most files that a step copies.
const MAX_ENTRIES: u64 = 1_000_000;

/// Longest name with what else stands beside a header, in bytes: far above what any file system has.
const MAX_NAME_BYTES: u64 = 1 << 20;

/// Time of all files, so that the same content is known again: 2000-01-01.
const TIME: u64 = 946_684_800;

/// Links that lead out of what is copied, and the bytes of their names and targets.
const MAX_LINKS: usize = 20_000;
const MAX_LINK_BYTES: usize = 8 << 20;

/// The member that lists links which lead out of what is copied: target and name in turn, each with a NUL after it. Archives are unpacked by what refuses
/// such links, and an image has them as they are, so they are made by a command inside (`plan::LINKS`).
pub(super) const LINKS: &str = ".sandbar-links";

/// What a step copies, rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewritten {
    pub(super) found: Found,
    /// Whether [`LINKS`] is among it.
    pub(super) has_links: bool,
}

/// What the source of a step turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// One file, under this name.
    File(String),
    /// Files and folders for below the destination.
    Tree,
}

/// Makes of an upload the archive of what a step copies: names from the destination on, modes as the step says, nobody's owners and times.
pub(super) fn rewrite(upload: &Path, copy: &Copy, to: &mut File) -> Result<Rewritten, String> {
    let source = Source::parse(&copy.from)?;
    check_names(upload)?;
    let mut archive = open(upload).map_err(|error| unreadable(&error))?;
    let mut builder = Builder::new(BufWriter::new(to));
    let (mut found, mut bytes, mut entries) = (None, 0u64, 0u64);
    let mut links = Links::default();
    for entry in archive.entries().map_err(|error| unreadable(&error))? {
        let mut entry = entry.map_err(|error| unreadable(&error))?;
        let name = clean(&entry.path_bytes())?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        entries += 1;
        bytes = bytes.saturating_add(entry.size());
        if entries > MAX_ENTRIES || bytes > MAX_BYTES {
            return Err(format!(
                "its files are too many: expected at most {MAX_ENTRIES} of {MAX_BYTES} bytes together"
            ));
        }
        let Some(place) = source.place(&name) else { continue };
        let place = match place {
            Place::Itself if kind.is_dir() => {
                found.get_or_insert(Found::Tree);
                continue;
            }
            Place::Itself => {
                let name = name.rsplit('/').next().unwrap_or_default().to_owned();
                found = Some(Found::File(name.clone()));
                name
            }
            Place::Below(below) => {
                found.get_or_insert(Found::Tree);
                below
            }
        };
        if place == LINKS {
            return Err(format!("`{name}` is a name that copies use themselves"));
        }
        let mode = mode(copy.mode, entry.header().mode().unwrap_or(0o644), kind.is_dir());
        let mut header = header(kind, mode);
        let written = match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                header.set_entry_type(EntryType::Regular);
                let size = entry.size();
                header.set_size(size);
                let mut content = Counted { from: &mut entry, bytes: 0 };
                let appended = builder.append_data(&mut header, &place, &mut content);
                // The reader takes the end of the upload for the end of a file.
                let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "it is cut short");
                appended.and_then(|()| if content.bytes == size { Ok(()) } else { Err(cut()) })
            }
            EntryType::Directory => builder.append_data(&mut header, format!("{place}/"), io::empty()),
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if leads_out(&place, &target) {
                    links.add(&place, &target)?;
                    continue;
                }
                builder.append_link(&mut header, &place, path_of(&target))
            }
            EntryType::Link => {
                let target = clean(&entry.link_name_bytes().unwrap_or_default())?;
                let Some(Place::Below(target)) = source.place(&target) else {
                    return Err(format!("`{name}` is a hard link to `{target}`, which is not copied"));
                };
                builder.append_link(&mut header, &place, &target)
            }
            _ => return Err(format!("`{name}` is no file, folder or link")),
        };
        written.map_err(|error| format!("`{name}`: {error}"))?;
    }
    let has_links = !links.list.is_empty();
    if has_links {
        let mut header = header(EntryType::Regular, 0o600);
        header.set_size(links.list.len() as u64);
        let written = builder.append_data(&mut header, LINKS, links.list.as_slice());
        written.map_err(|error| format!("its links could not be kept: {error}"))?;
    }
    let done = builder.into_inner().and_then(|mut writer| writer.flush());
    done.map_err(|error| format!("its files could not be kept: {error}"))?;
    let found = found.ok_or_else(|| format!("its files hold nothing that `{}` names", copy.from))?;
    Ok(Rewritten { found, has_links })
}

/// A header of nobody's, of a time that is always the same.
fn header(kind: EntryType, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_mtime(TIME);
    header.set_mode(mode);
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Links for [`LINKS`].
#[derive(Debug, Default)]
struct Links {
    list: Vec<u8>,
    count: usize,
}

impl Links {
    fn add(&mut self, place: &str, target: &[u8]) -> Result<(), String> {
        if target.is_empty() || target.contains(&0) {
            return Err(format!("`{place}` is a link that leads to nothing"));
        }
        for part in [target, place.as_bytes()] {
            self.list.extend_from_slice(part);
            self.list.push(0);
        }
        self.count += 1;
        if self.count > MAX_LINKS || self.list.len() > MAX_LINK_BYTES {
            return Err(format!(
                "more than {MAX_LINKS} of its links lead out of it: leave them out, or copy less at once"
            ));
        }
        Ok(())
    }
}

/// Whether a link at `place` leads to what is not below the destination, or may: it begins at `/`, climbs too far, or climbs after a name, which may be a link.
fn leads_out(place: &str, target: &[u8]) -> bool {
    let depth = place.split('/').filter(|part| !part.is_empty()).count().saturating_sub(1);
    let parts = target.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let climbs = parts.clone().take_while(|part| *part == b"..").count();
    let climbs_later = parts.skip(climbs).any(|part| part == b"..");
    target.starts_with(b"/") || climbs > depth || climbs_later
}

/// Counts what is read.
struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Names that do not fit a header are read into memory at once: they are looked at first.
fn check_names(upload: &Path) -> Result<(), String> {
    let mut archive = open(upload).map_err(|error| unreadable(&error))?;
    for entry in archive.entries().map_err(|error| unreadable(&error))?.raw(true) {
        let entry = entry.map_err(|error| unreadable(&error))?;
        let kind = entry.header().entry_type();
        let is_name = kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions();
        if is_name && entry.size() > MAX_NAME_BYTES {
            return Err(format!("a name is longer than {MAX_NAME_BYTES} bytes"));
        }
    }
    Ok(())
}

/// What a step copies, as a pattern of names from the context on.
struct Source {
    /// Folder that names are taken from, with a `/` at its end, or nothing.
    folder: String,
    /// The one thing that is named, if it is no pattern.
    exact: Option<String>,
}

/// Where an entry goes.
enum Place {
    /// It is what the step names.
    Itself,
    /// Below the destination, under this name.
    Below(String),
}

impl Source {
    fn parse(from: &str) -> Result<Self, String> {
        let name = clean(from.as_bytes())?;
        let parts: Vec<_> = name.split('/').collect();
        let is_pattern = |part: &&str| part.contains(['*', '?', '[', '{', '(', '!']);
        Ok(match parts.iter().position(is_pattern) {
            // The client has chosen what matches: everything that it sent does.
            Some(at) => {
                let folder = parts[..at].join("/");
                Self { folder: if folder.is_empty() { folder } else { folder + "/" }, exact: None }
            }
            None if name.is_empty() => Self { folder: String::new(), exact: None },
            None => Self { folder: format!("{name}/"), exact: Some(name) },
        })
    }

    fn place(&self, name: &str) -> Option<Place> {
        if self.exact.as_deref() == Some(name) {
            return Some(Place::Itself);
        }
        let below = name.strip_prefix(self.folder.as_str())?;
        (!below.is_empty()).then(|| Place::Below(below.to_owned()))
    }
}

/// A name without `.` and `/` that say nothing. One that climbs is refused.
fn clean(name: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(name).map_err(|_| format!("`{}` is not UTF-8", name.escape_ascii()))?;
    let parts: Vec<_> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(format!("`{}` climbs with `..`", text.escape_debug()));
    }
    Ok(parts.join("/"))
}

fn path_of(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// The mode that is asked for; a folder can be searched by whoever may read it.
fn mode(asked: Option<u32>, own: u32, is_dir: bool) -> u32 {
    match asked {
        Some(mode) if is_dir => mode | ((mode & 0o444) >> 2),
        Some(mode) => mode,
        None => own & 0o1777,
    }
}

fn open(upload: &Path) -> io::Result<Archive<Box<dyn Read>>> {
    let mut file = File::open(upload)?;
    let mut magic = [0; 2];
    let read = file.read(&mut magic)?;
    file.rewind()?;
    let file = BufReader::new(file);
    let is_gzip = read == magic.len() && magic == [0x1f, 0x8b];
    let reader: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    Ok(Archive::new(reader))
}

fn unreadable(error: &io::Error) -> String {
    format!("its files can't be read: expected a tar archive, plain or gzip ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(names: &[(&str, EntryType)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut builder =
            Builder::new(flate2::write::GzEncoder::new(file.reopen().unwrap(), flate2::Compression::fast()));
        for (name, kind) in names {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o600);
            header.set_uid(4242);
            header.set_size(if kind.is_file() { 2 } else { 0 });
            if *kind == EntryType::Symlink {
                builder.append_link(&mut header, name, "target").unwrap();
            } else {
                builder
                    .append_data(&mut header, name, if kind.is_file() { b"hi".as_slice() } else { b"" })
                    .unwrap();
            }
        }
        builder.into_inner().unwrap().finish().unwrap();
        file
    }

    fn copied(
        names: &[(&str, EntryType)],
        from: &str,
        mode: Option<u32>,
    ) -> Result<(Found, Vec<(String, u32)>), String> {
        let upload = upload(names);
        let copy = Copy { from: from.to_owned(), to: "x".to_owned(), user: None, mode, hash: String::new() };
        let mut out = tempfile::tempfile().unwrap();
        let found = rewrite(upload.path(), &copy, &mut out)?.found;
        out.rewind().unwrap();
        let mut archive = Archive::new(out);
        let names = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().mtime().unwrap()), (0, TIME));
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap())
        });
        Ok((found, names.collect()))
    }

    const FILE: EntryType = EntryType::Regular;
    const DIR: EntryType = EntryType::Directory;

    #[test]
    fn names_are_from_the_destination_on() {
        let names = [
            ("app/", DIR),
            ("app/a", FILE),
            ("app/b/", DIR),
            ("app/b/c", FILE),
            ("app/l", EntryType::Symlink),
        ];
        let (found, tree) = copied(&names, "./app/", None).unwrap();
        assert_eq!(found, Found::Tree);
        let tree: Vec<_> = tree.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(tree, ["a", "b/", "b/c", "l"]);

        assert_eq!(copied(&[("a.txt", FILE)], "a.txt", None).unwrap().0, Found::File("a.txt".to_owned()));
        let (found, tree) = copied(&[("d/a.txt", FILE)], "d/a.txt", Some(0o640)).unwrap();
        assert_eq!((found, tree), (Found::File("a.txt".to_owned()), vec![("a.txt".to_owned(), 0o640)]));
        let (_, tree) = copied(&[("d/a.txt", FILE), ("d/e/", DIR)], "d/*", Some(0o644)).unwrap();
        assert_eq!(tree, [("a.txt".to_owned(), 0o644), ("e/".to_owned(), 0o755)]);
        let (_, tree) = copied(&names, ".", None).unwrap();
        assert_eq!(tree.len(), 5);
    }

    #[test]
    fn links_that_lead_out_are_listed_and_others_kept() {
        for (place, target, out) in [
            ("a", "b", false),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "../../b", true),
            ("d/e/a", "../../b", false),
            ("d/a", "x/../b", true),
            ("a", "/usr/bin/python3", true),
            ("a", "./b", false),
        ] {
            assert_eq!(leads_out(place, target.as_bytes()), out, "{place} -> {target}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut builder = Builder::new(file.reopen().unwrap());
        for (name, target) in [("env/bin/python3", "/usr/bin/python3"), ("env/lib64", "lib")] {
            builder.append_link(&mut super::header(EntryType::Symlink, 0o777), name, target).unwrap();
        }
        builder.into_inner().unwrap();
        let copy = |from: &str| Copy {
            from: from.to_owned(),
            to: "x".to_owned(),
            user: None,
            mode: None,
            hash: String::new(),
        };
        let mut out = tempfile::tempfile().unwrap();
        assert_eq!(
            rewrite(file.path(), &copy("env"), &mut out).unwrap(),
            Rewritten { found: Found::Tree, has_links: true }
        );
        out.rewind().unwrap();
        let mut seen = Vec::new();
        for entry in Archive::new(&out).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            seen.push((entry.path().unwrap().display().to_string(), content));
        }
        let list = "/usr/bin/python3\0bin/python3\0".to_owned();
        assert_eq!(seen, [("lib64".to_owned(), String::new()), (LINKS.to_owned(), list)]);
        assert!(copied(&[(LINKS, FILE)], ".", None).unwrap_err().contains("themselves"));
    }

    #[test]
    fn what_is_hostile_or_empty_is_refused() {
        assert!(copied(&[("a", FILE)], "b", None).unwrap_err().contains("nothing"));
        assert!(copied(&[("a", FILE)], "../a", None).unwrap_err().contains("climbs"));
        let whole = upload(&[("a", FILE)]);
        let mut plain = Vec::new();
        MultiGzDecoder::new(File::open(whole.path()).unwrap()).read_to_end(&mut plain).unwrap();
        std::fs::write(whole.path(), &plain[..513]).unwrap();
        let copy = Copy { from: "a".into(), to: "b".into(), user: None, mode: None, hash: String::new() };
        let error = rewrite(whole.path(), &copy, &mut tempfile::tempfile().unwrap()).unwrap_err();
        assert!(error.contains("cut short") || error.contains("tar"), "{error}");
        assert!(copied(&[("a", EntryType::Fifo)], "a", None).unwrap_err().contains("no file"));
        let garbage = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(garbage.path(), vec![7; 2048]).unwrap();
        let copy = Copy { from: "a".into(), to: "b".into(), user: None, mode: None, hash: String::new() };
        let error = rewrite(garbage.path(), &copy, &mut tempfile::tempfile().unwrap()).unwrap_err();
        assert!(error.contains("tar"), "{error}");
    }
}
