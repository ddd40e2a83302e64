//! Whatever an archive holds: it is unpacked as it says, or refused by name, and nothing leaves the folder.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::{BLOCK, file, member, pax, tar, unpack};
use sandbar_archive::{ErrorKind, Owners, Rules};
use tempfile::tempdir;

#[test]
fn files_folders_and_links_are_as_the_archive_says() {
    let folder = tempdir().unwrap();
    let archive = tar(&[
        member(b"d/", b'5', 0o500, b"", b""),
        file("d/f", b"content"),
        member(b"d/hard", b'1', 0o644, b"d/f", b""),
        member(b"d/soft", b'2', 0o777, b"f", b""),
        member(b"implied/tool", b'0', 0o6751, b"", b"x"),
    ]);
    let report = unpack(Rules::default(), &archive, folder.path()).unwrap();
    assert_eq!((report.entries, report.bytes), (5, 8));
    let at = |name: &str| folder.path().join(name);
    assert_eq!(fs::read(at("d/soft")).unwrap(), b"content");
    assert_eq!(fs::metadata(at("d/f")).unwrap().ino(), fs::metadata(at("d/hard")).unwrap().ino());
    assert_eq!(fs::metadata(at("d")).unwrap().permissions().mode() & 0o7777, 0o500);
    assert_eq!(fs::metadata(at("implied/tool")).unwrap().permissions().mode() & 0o7777, 0o751);
    assert_eq!(fs::metadata(at("d/f")).unwrap().mtime(), 0);
    fs::set_permissions(at("d"), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn folders_that_are_not_named_are_what_they_usually_are() {
    let folder = tempdir().unwrap();
    let archive = tar(&[
        file("tmp/x", b"1"),
        file("var/tmp/deep/er/y", b"2"),
        file("root/z", b"3"),
        file("srv/tmp/b", b"4"),
    ]);
    unpack(Rules::rootfs().with_owners(Owners::Caller), &archive, folder.path()).unwrap();
    for (name, mode) in [
        ("tmp", 0o1777),
        ("var", 0o755),
        ("var/tmp", 0o1777),
        ("var/tmp/deep", 0o755),
        ("root", 0o700),
        ("srv/tmp", 0o755),
    ] {
        let is = fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(is, mode, "{name} is {is:o}");
    }
}

#[test]
fn every_cut_is_seen() {
    let whole = tar(&[pax(&[("path", b"first")]), file("x", b"1"), file("second", &[1; 700])]);
    for cut in (0..whole.len()).step_by(100).chain((0..whole.len()).step_by(BLOCK)) {
        let folder = tempdir().unwrap();
        let error = unpack(Rules::default(), &whole[..cut], folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "cut after {cut}: {error}");
    }
    let folder = tempdir().unwrap();
    unpack(Rules::default(), &whole, folder.path()).unwrap();
    assert_eq!(fs::read(folder.path().join("first")).unwrap(), b"1");
}

/// What is refused, by which kind of error, and what the error says.
fn refused(rules: &Rules, members: &[Vec<u8>], kind: ErrorKind, part: &str) {
    let folder = tempdir().unwrap();
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    let error = unpack(rules.clone(), &tar(members), &inside).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{error}: it wrote outside");
}

fn link(name: &str, target: &str) -> Vec<u8> {
    member(name.as_bytes(), b'2', 0o777, target.as_bytes(), b"")
}

#[test]
fn what_leads_out_is_refused_by_name() {
    let strict = Rules::default();
    let hard = |name: &str, target: &str| member(name.as_bytes(), b'1', 0o644, target.as_bytes(), b"");
    for (members, part) in [
        (vec![file("/etc/x", b"")], "`/etc/x`: its name is absolute"),
        (vec![file("a/../../x", b"")], "climbs"),
        (vec![file("-rf", b"")], "option"),
        (vec![link("out", "..")], "outside"),
        (vec![link("out", "/etc")], "outside"),
        (vec![link("d/out", "../../x")], "outside"),
        (vec![link("here", "."), file("here/x", b"")], "`here/x`: a folder of it came before"),
        (vec![link("a", "b"), link("b", "a"), file("a/x", b"")], "`a/x`: a folder of it came before"),
        (vec![link("d", "."), member(b"d/", b'5', 0o755, b"", b"")], "not followed"),
        (vec![link("f", "g"), file("f", b"x")], "twice"),
        (vec![file("f", b"x"), member(b"f/", b'5', 0o755, b"", b"")], "not followed"),
        (vec![hard("x", "../../etc/passwd")], "climbs"),
        (vec![hard("x", "/etc/passwd")], "absolute"),
        (vec![hard("x", "x")], "itself"),
        (vec![hard("x", "later"), file("later", b"")], "not a member before it"),
        (vec![member(b"d/", b'5', 0o755, b"", b""), hard("x", "d")], "neither a file nor a link"),
        (vec![link("a/b/l", "../../t"), hard("l", "a/b/l")], "outside"),
        (vec![member(b"null", b'3', 0o666, b"", b"")], "`null`: it is a device"),
        (vec![member(b"disk", b'4', 0o666, b"", b"")], "device"),
        (vec![member(b"pipe", b'6', 0o666, b"", b"")], "pipe"),
        (vec![member(b"odd", b'V', 0o666, b"", b"")], "type `V`"),
        (vec![member(b"holes", b'S', 0o666, b"", b"")], "sparse"),
        (
            vec![pax(&[("path", b"holes"), ("GNU.sparse.major", b"1")]), file("x", b"")],
            "`holes`: a member is sparse",
        ),
        (vec![pax(&[("path", &[b'x'; 300])]), file("x", b"")], "a name of 300 bytes is too long"),
        (vec![pax(&[("path", b"a\0b")]), file("x", b"")], "NUL"),
        (vec![pax(&[("path", &b"d/".repeat(300))]), file("x", b"")], "folders deep"),
        (vec![member(b"global", b'g', 0, b"", b"13 size=1000\n"), file("x", b"")], "whole archive"),
    ] {
        refused(&strict, &members, ErrorKind::Refused, part);
    }
}

#[test]
fn what_is_damaged_or_too_much_is_told_apart() {
    let strict = Rules::default();
    let odd = |offset: usize, bytes: &[u8]| {
        let mut header = file("odd", b"");
        header[offset..offset + bytes.len()].copy_from_slice(bytes);
        common::sum(&mut header);
        header
    };
    for (members, part) in [
        (vec![odd(124, b"99999999999")], "`odd`: the size"),
        (vec![odd(100, b"rwxr-xr")], "mode"),
        (vec![odd(124, &[0xff; 12])], "size"),
        (vec![odd(124, &[0x80, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])], "size"),
        (vec![file("", b"x")], "no name"),
        (vec![member(b"link", b'2', 0o777, b"x", b"content")], "is no file"),
        (vec![pax(&[]), pax(&[("path", b"x")])], "without its member"),
        (vec![member(b"pax", b'x', 0, b"", b"12 path=x\n"), file("x", b"")], "malformed"),
        (vec![vec![0; BLOCK], file("x", b"")], "zeros is among"),
        (vec![vec![0; 2 * BLOCK], file("x", b"")], "after the end marker"),
        (vec![b"not a tar at all".repeat(64)], "not a tar archive"),
    ] {
        refused(&strict, &members, ErrorKind::Malformed, part);
    }
    let many: Vec<_> = (0..11).map(|number| file(&format!("f{number}"), b"12345")).collect();
    refused(
        &strict.clone().with_max_entries(10),
        &many,
        ErrorKind::Limit,
        "`f10`: the archive has more than 10",
    );
    refused(
        &strict.clone().with_max_bytes(54),
        &many,
        ErrorKind::Limit,
        "`f10`: the archive has more than 54 bytes",
    );
    // What is announced counts, and not what comes.
    refused(&strict, &[odd(124, b"\x80\0\0\0\x10\0\0\0\0\0\0\0")], ErrorKind::Limit, "bytes of content");
    let long = pax(&[("comment", &vec![b'x'; 300_000])]);
    refused(&strict, &[long, file("x", b"")], ErrorKind::Limit, "extended headers");
    refused(&strict, &[vec![0; 3 << 20]], ErrorKind::Limit, "after the end marker");
}

#[test]
fn names_of_any_bytes_and_large_numbers_are_as_they_should_be() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempdir().unwrap();
    let deep = [b"d".repeat(200), b"e".repeat(255)].join(&b'/');
    let names: [&[u8]; 5] = ["zürich/日本".as_bytes(), b"new\nline", b"\xff\xfe", b"a\\b*?", &deep];
    let mut members = Vec::new();
    for name in names {
        members.push(pax(&[("path", name), ("mtime", b"-1.25")]));
        members.push(file("short", name));
    }
    // GNU's form of a long name and of a large number.
    members.push(member(b"././@LongLink", b'L', 0, b"", &[&b"long/".repeat(40)[..], b"name\0"].concat()));
    let mut header = file("x", b"x");
    header[136..148]
        .copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    common::sum(&mut header);
    members.push(header);
    unpack(Rules::default(), &tar(&members), folder.path()).unwrap();
    for name in names {
        let path = folder.path().join(std::ffi::OsStr::from_bytes(name));
        assert_eq!(fs::read(&path).unwrap(), name);
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (-2, 750_000_000));
    }
    let long = folder.path().join("long/".repeat(40)).join("name");
    assert_eq!(fs::metadata(long).unwrap().mtime(), -2);
}

#[test]
fn a_root_file_system_keeps_links_and_sticky_folders_and_leaves_devices_out() {
    let folder = tempdir().unwrap();
    let rules = Rules::rootfs().with_owners(sandbar_archive::Owners::Caller);
    let members = [
        member(b"./", b'5', 0o755, b"", b""),
        member(b"/tmp/", b'5', 0o7777, b"", b""),
        link("./bin", "usr/bin"),
        link("etc/mtab", "/proc/self/mounts"),
        link("up", "../../../.."),
        member(b"dev/null", b'3', 0o666, b"", b""),
        member(b"run/pipe", b'6', 0o666, b"", b""),
        member(b"usr/bin/su", b'0', 0o4755, b"", b"x"),
        file("opt/-", b""),
        pax(&[
            ("SCHILY.xattr.user.kept", b"1"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.security.capability", b"x"),
        ]),
        file("opt/x", b""),
    ];
    let report = unpack(rules.clone(), &tar(&members), folder.path()).unwrap();
    assert_eq!((report.skipped, report.entries), (2, 8));
    assert!(report.dropped_xattrs >= 2);
    let mode = |name: &str| fs::symlink_metadata(folder.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("tmp"), mode("usr/bin/su")), (0o1777, 0o755));
    assert_eq!(fs::read_link(folder.path().join("etc/mtab")).unwrap().to_str(), Some("/proc/self/mounts"));
    assert!(!folder.path().join("dev/null").exists());
    // None of them is followed.
    refused(&rules, &[link("up", ".."), file("up/x", b"")], ErrorKind::Refused, "not followed");
    refused(&rules, &[file("/../x", b"")], ErrorKind::Refused, "climbs");
}

#[test]
fn owners_are_restored_where_that_is_asked_for() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let folder = tempdir().unwrap();
    let with_owner = |mut header: Vec<u8>, uid: &[u8]| {
        header[108..108 + uid.len()].copy_from_slice(uid);
        header[116..123].copy_from_slice(b"0000012");
        common::sum(&mut header);
        header
    };
    let members = [
        with_owner(member(b"d/", b'5', 0o2755, b"", b""), b"0000011"),
        with_owner(member(b"d/f", b'0', 0o4755, b"", b"x"), b"0000011"),
        with_owner(link("d/l", "f"), b"0000011"),
    ];
    unpack(Rules::rootfs(), &tar(&members), folder.path()).unwrap();
    for name in ["d", "d/f", "d/l"] {
        let meta = fs::symlink_metadata(folder.path().join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o6000), (9, 10, 0), "{name}");
    }
    let high = with_owner(file("x", b""), b"0200000");
    refused(&Rules::rootfs(), &[high], ErrorKind::Refused, "65536:10");
}

#[test]
fn whiteouts_become_those_of_an_overlay() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempdir().unwrap();
    let rules = Rules::rootfs()
        .with_owners(sandbar_archive::Owners::Caller)
        .with_whiteouts(sandbar_archive::Whiteouts::Oci);
    let members = [
        file("etc/.wh.gone", b""),
        file("etc/.wh.back", b""),
        file("etc/back", b"anew"),
        file("kept/new", b""),
        file(".wh.kept", b""),
        file(".wh.anew", b""),
        member(b"anew/", b'5', 0o755, b"", b""),
        file(".wh.deep", b""),
        file("deep/er/file", b""),
        file("opaque/.wh..wh..opq", b""),
        file("opaque/file", b""),
        file(".wh..wh.plnk", b""),
    ];
    let report = match unpack(rules.clone(), &tar(&members), folder.path()) {
        Err(error) if error.to_string().contains("Operation not permitted") => {
            eprintln!("skipped: no whiteouts can be made here: {error}");
            return;
        }
        report => report.unwrap(),
    };
    assert_eq!(report.skipped, 1);
    let at = |name: &str| folder.path().join(name);
    assert!(fs::symlink_metadata(at("etc/gone")).unwrap().file_type().is_char_device());
    assert_eq!(fs::read(at("etc/back")).unwrap(), b"anew");
    for name in ["kept", "anew", "deep", "opaque"] {
        let mut value = [0; 4];
        let length = rustix::fs::getxattr(at(name), "user.overlay.opaque", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"y", "{name}");
    }
    assert!(at("deep/er/file").exists() && at("kept/new").exists());
    assert!(!at(".wh.kept").exists() && !at("opaque/.wh..wh..opq").exists());
    refused(&rules, &[file("etc/.wh...", b"")], ErrorKind::Refused, "can't be");
}

#[test]
fn folders_that_are_not_named_are_as_in_the_layers_below() {
    use std::os::fd::AsFd as _;
    let (low, high, into) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    let folder = |layer: &tempfile::TempDir, name: &str, mode: u32| {
        fs::create_dir_all(layer.path().join(name)).unwrap();
        fs::set_permissions(layer.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["tmp", "both", "file", "opaque/in", "named"] {
        folder(&low, name, 0o1731);
    }
    folder(&high, "both", 0o711);
    folder(&high, "opaque", 0o700);
    fs::write(high.path().join("file"), "").unwrap();
    let mark = rustix::fs::setxattr(
        high.path().join("opaque"),
        "user.overlay.opaque",
        b"y",
        rustix::fs::XattrFlags::empty(),
    );
    let members = [
        file("tmp/x", b""),
        file("both/x", b""),
        file("file/x", b""),
        file("opaque/in/x", b""),
        file("named/x", b""),
        member(b"named/", b'5', 0o750, b"", b""),
        file("new/er/x", b""),
    ];
    let layers = [high.path(), low.path()].map(|path| fs::File::open(path).unwrap());
    let below = [layers[0].as_fd(), layers[1].as_fd()];
    let rules = Rules::rootfs().with_owners(sandbar_archive::Owners::Caller);
    let unpack = sandbar_archive::Unpack::new(rules).with_below(&below);
    unpack.run(&mut &*tar(&members), fs::File::open(into.path()).unwrap().as_fd()).unwrap();
    let mode = |name: &str| fs::metadata(into.path().join(name)).unwrap().mode() & 0o7777;
    for (name, expected) in [
        ("tmp", 0o1731),
        ("both", 0o711),
        ("file", 0o755),
        ("named", 0o750),
        ("new", 0o755),
        ("new/er", 0o755),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
    // Not every file system has attributes.
    if mark.is_ok() {
        assert_eq!((mode("opaque"), mode("opaque/in")), (0o700, 0o755));
    }
    let time = |layer: &tempfile::TempDir| fs::metadata(layer.path().join("tmp")).unwrap().mtime();
    assert_eq!(time(&into), time(&low));
}

#[test]
fn it_stops_when_told_to_and_tells_how_far_it_is() {
    let folder = tempdir().unwrap();
    let archive = tar(&[file("a", &vec![1; 300_000]), file("b", &vec![1; 300_000])]);
    let into = fs::File::open(folder.path()).unwrap();
    let seen = std::cell::Cell::new(sandbar_archive::Progress::default());
    let mut progress = |now| seen.set(now);
    let cancelled = || seen.get().entries == 1 && seen.get().bytes > 400_000;
    let error = sandbar_archive::Unpack::new(Rules::default())
        .with_progress(&mut progress)
        .with_cancelled(&cancelled)
        .run(&mut &archive[..], std::os::fd::AsFd::as_fd(&into))
        .unwrap_err();
    assert_eq!((error.kind(), error.member()), (ErrorKind::Cancelled, Some("b")));
    assert!(seen.get().bytes < 600_000);
}

#[test]
fn zeros_become_holes() {
    let folder = tempdir().unwrap();
    let mut content = vec![0; 1 << 20];
    content[300_000] = 1;
    unpack(
        Rules::default(),
        &tar(&[file("holes", &content), file("zeros", &vec![0; 200_000])]),
        folder.path(),
    )
    .unwrap();
    assert_eq!(fs::read(folder.path().join("holes")).unwrap(), content);
    let meta = fs::metadata(folder.path().join("zeros")).unwrap();
    assert_eq!((meta.len(), meta.blocks()), (200_000, 0));
}
