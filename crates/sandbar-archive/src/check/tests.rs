use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::ErrorKind;

fn archive(members: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, link) in members {
        let mut header = Header::new_ustar();
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(u64::from(*kind == EntryType::Regular));
        header.set_mode(0o644);
        header.set_cksum();
        let content: &[u8] = if *kind == EntryType::Regular { b"x" } else { b"" };
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn check(members: &[(EntryType, &str, &str)]) -> Result<UnpackReport, ArchiveError> {
    Check::new(Rules::default().with_destination("/home/user/app")).run(&mut &archive(members)[..])
}

#[test]
fn what_lies_below_passes_and_is_counted() {
    let report = check(&[
        (EntryType::Directory, "d/", ""),
        (EntryType::Regular, "d/f", ""),
        (EntryType::Symlink, "d/s", "../f"),
        (EntryType::Symlink, "own", "/home/user/app/d"),
        (EntryType::Link, "h", "d/f"),
    ]);
    let report = report.unwrap();
    assert_eq!((report.entries, report.bytes), (5, 1));
}

#[test]
fn what_leads_out_is_refused() {
    use EntryType::{Fifo, Link, Regular, Symlink};
    let bad: &[&[(EntryType, &str, &str)]] = &[
        &[(Regular, "../f", "")],
        &[(Regular, "/f", "")],
        &[(Regular, "-x", "")],
        &[(Symlink, "s", "..")],
        &[(Symlink, "s", "/etc")],
        // A program that goes by paths would leave through these.
        &[(Symlink, "s", "/home/user/app/d"), (Regular, "s/f", "")],
        &[(Symlink, "s", "d"), (EntryType::Directory, "s", "")],
        &[(Symlink, "a/s", ".."), (Link, "t", "a/s")],
        &[(Symlink, "s", "d"), (Link, "h", "s/f")],
        &[(Link, "h", "../secret")],
        &[(Fifo, "p", "")],
    ];
    for members in bad {
        assert_eq!(check(members).unwrap_err().kind(), ErrorKind::Refused, "{members:?}");
    }
}

#[test]
fn a_cut_is_seen_wherever_it_is() {
    let whole = archive(&[(EntryType::Regular, "a", ""), (EntryType::Regular, "b", "")]);
    for cut in 0..whole.len() {
        let checked = Check::new(Rules::default()).run(&mut &whole[..cut]);
        assert_eq!(checked.unwrap_err().kind(), ErrorKind::Truncated, "cut after {cut} bytes");
    }
}

proptest! {
    /// Both go by the same rules: what passes here is unpacked there.
    #[test]
    fn what_passes_is_unpacked(
        members in prop::collection::vec(
            (prop::sample::select(vec![EntryType::Regular, EntryType::Directory, EntryType::Symlink]),
             prop::sample::select(vec!["a", "b", "a/b", "a/c", "b/a/d", "../a", "/a", "-a", "a/../b"]),
             prop::sample::select(vec!["a", "..", "../b", "/etc", "a/..", "b/a"])),
            0..6),
    ) {
        let bytes = archive(&members);
        let checked = Check::new(Rules::default()).run(&mut &bytes[..]);
        let place = tempfile::tempdir().unwrap();
        let folder = std::fs::File::open(place.path()).unwrap();
        let unpacked = crate::Unpack::new(Rules::default()).run(&mut &bytes[..], std::os::fd::AsFd::as_fd(&folder));
        if let Err(error) = &checked && unpacked.is_ok() {
            // Stricter only where a link is in the way of what replaces it.
            prop_assert!(error.reason().contains("a link of the archive"), "{error}");
        }
        if checked.is_ok() && let Err(error) = unpacked {
            // Of two members with one name the other program keeps the last, or says so.
            prop_assert!(!error.reason().contains("outside") && !error.reason().contains("climbs"), "{error}");
        }
    }
}
