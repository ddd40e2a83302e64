use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sandbar_engine::Host;

use super::*;
use crate::home::Home;
use crate::store::{LayerId, STORE_BASE, Staged, StoreIds};

/// Here this program is no worker: the executable is.
fn worker() -> Worker {
    let executable = crate::helper::find(None, &crate::env::Environment::read()).unwrap();
    Worker::new(&executable, StoreIds::of(&Host::observe()))
}

fn do_it(job: Job, descriptors: &[&OwnedFd]) -> sandbar_core::Result<Report> {
    let descriptors = descriptors.iter().map(|fd| fd.as_fd()).collect();
    worker().run(Task { job, descriptors, progress: &mut |_| {}, cancel: None }, "test")
}

/// A tar archive of members with their owners.
fn archive(members: &[(&str, u64, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, owner, content) in members {
        let mut head = [0_u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        let mut put = |at: usize, text: String| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(100, format!("{:07o}", 0o4755));
        put(108, format!("{owner:07o}"));
        put(116, format!("{owner:07o}"));
        put(124, format!("{:011o}", content.len()));
        put(136, format!("{:011o}", 1_000_000));
        put(148, " ".repeat(8));
        put(156, if name.ends_with('/') { "5" } else { "0" }.into());
        put(257, "ustar\x0000".into());
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&head);
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file.into()
}

/// A new layer in the making, with its part that a worker may fill.
fn staged(home: &Home) -> (Staged<'_>, OwnedFd) {
    let staged = Staged::new(home, worker().ids().clone()).unwrap();
    let root = staged.make_part("root").unwrap();
    worker().own(root.as_fd()).unwrap();
    (staged, root)
}

#[test]
fn an_archive_becomes_a_layer_with_owners_of_its_own() {
    let scratch = tempfile::tempdir().unwrap();
    let home = Home::ensure(&scratch.path().join("home")).unwrap();
    let (staged, root) = staged(&home);
    let tar =
        archive(&[("etc/", 0, b""), ("etc/motd", 0, b"hello\n"), ("home/", 0, b""), ("home/x", 1000, b"x")]);
    let as_it_is = |ids| Job::Unpack { whiteouts: true, ids, layers: 0 };
    let report = do_it(as_it_is(UnpackIds::AsIs), &[&file_of(&tar), &root]).unwrap();
    assert_eq!((report.entries, report.bytes), (4, 7));
    let digest = super::serve::hex(sha2::Digest::new_with_prefix(&tar));
    assert_eq!((report.digest, report.stream_digest), (Some(digest.clone()), Some(digest)));
    let path = scratch.path().join("home").join(staged.place()).join("root");
    let owner = |name: &str| path.join(name).symlink_metadata().unwrap().uid();
    let caller = rustix::process::geteuid().as_raw();
    let (root_is, user_is) = match worker().ids() {
        StoreIds::Range { first } => (*first, first + 1000),
        StoreIds::Subordinate(ids) => (caller, ids.uid_base + 999),
        StoreIds::Single => (caller, caller),
    };
    assert_eq!(worker().ids() == &StoreIds::Range { first: STORE_BASE }, caller == 0);
    assert_eq!((owner("etc/motd"), owner("home/x")), (root_is, user_is));
    assert_eq!(path.join("home/x").metadata().unwrap().mode() & 0o7777, 0o755);

    // Counted and read, it is the same wherever it was unpacked; whose files are in it counts.
    let digest = |root: &OwnedFd| {
        let report = do_it(Job::Measure { digest: true }, &[root]).unwrap();
        assert_eq!((report.entries, report.bytes), (4, 7));
        report.digest.unwrap()
    };
    let (_again, copy) = self::staged(&home);
    let merge = Job::Merge { layers: 1, keep_whiteouts: true };
    assert_eq!(do_it(merge, &[&root, &copy]).unwrap().bytes, 7);
    assert_eq!(digest(&root), digest(&copy));
    let (_other, all_of_root) = self::staged(&home);
    do_it(as_it_is(UnpackIds::Root), &[&file_of(&tar), &all_of_root]).unwrap();
    assert_eq!(digest(&root) == digest(&all_of_root), worker().ids() == &StoreIds::Single);

    // And an archive again.
    let packed: OwnedFd = tempfile::tempfile().unwrap().into();
    do_it(Job::Pack { ids: PackIds::AsIs }, &[&root, &packed]).unwrap();
    let mut packed = std::fs::File::from(packed);
    std::io::Seek::rewind(&mut packed).unwrap();
    let (_last, unpacked) = self::staged(&home);
    do_it(as_it_is(UnpackIds::AsIs), &[&packed.into(), &unpacked]).unwrap();
    assert_eq!(digest(&root), digest(&unpacked));
    drop(root);
    assert!(staged.finish(&LayerId::random().unwrap(), None).unwrap());
}

#[test]
fn what_is_wrong_is_an_error_that_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let home = Home::ensure(&scratch.path().join("home")).unwrap();
    let (_staged, root) = staged(&home);
    let cut = archive(&[("a", 0, b"content")]);
    let job = Job::Unpack { whiteouts: false, ids: UnpackIds::Root, layers: 0 };
    let error = do_it(job.clone(), &[&file_of(&cut[..600]), &root]).unwrap_err();
    assert_eq!(error.kind(), sandbar_core::ErrorKind::InvalidInput, "{error}");
    let climbing = archive(&[("../../a", 0, b"content")]);
    let error = do_it(job, &[&file_of(&climbing), &root]).unwrap_err();
    assert!(error.message().contains("../../a"), "{error}");
    let elsewhere = Worker::new(Path::new("/bin/true"), worker().ids().clone());
    let task = Task {
        job: Job::Measure { digest: false },
        descriptors: vec![root.as_fd()],
        progress: &mut |_| {},
        cancel: None,
    };
    // Either it can't even start in its empty root, or it says nothing.
    elsewhere.run(task, "test").unwrap_err();
}

#[test]
fn a_worker_sees_nothing_of_the_host_and_ends_when_it_is_told_to() {
    let scratch = tempfile::tempdir().unwrap();
    let home = Home::ensure(&scratch.path().join("home")).unwrap();
    let (_staged, root) = staged(&home);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let cancel = Cancel::new().unwrap();
    let canceller = cancel.clone();
    // It waits for an archive that never comes: nothing but the cancellation ends it.
    let waiting = std::thread::spawn(move || {
        let task = Task {
            job: Job::Unpack { whiteouts: false, ids: UnpackIds::Root, layers: 0 },
            descriptors: vec![reader.as_fd(), root.as_fd()],
            progress: &mut |_| {},
            cancel: Some(&cancel),
        };
        worker().run(task, "test")
    });
    let mut seen = None;
    let found = crate::wait::until(std::time::Duration::from_secs(20), || {
        seen = child_worker();
        Ok::<_, ()>(seen.is_some())
    });
    assert_eq!(found, Ok(true));
    let pid = seen.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("NoNewPrivs:"), ["1"]);
    assert_eq!(line("CapBnd:"), ["000000000000000f"]);
    assert_eq!(line("CapEff:"), ["000000000000000f"]);
    if rustix::process::geteuid().is_root() {
        assert_eq!(
            line("Uid:"),
            [STORE_BASE.to_string(), STORE_BASE.to_string(), STORE_BASE.to_string(), STORE_BASE.to_string()]
        );
        assert_eq!(std::fs::read_dir(format!("/proc/{pid}/root/")).unwrap().count(), 0);
    }
    canceller.cancel();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(error.message().contains("cancelled"), "{error}");
    drop(writer);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// A worker that is a child of this thread's process and has begun its work: it shows its own name.
fn child_worker() -> Option<u32> {
    let ours = std::process::id().to_string();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let is_ours =
            status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|of| of.trim() == ours));
        let name = std::fs::read(entry.path().join("cmdline")).ok()?;
        // Tests beside this one have workers, too: this one waits in a read from its archive.
        let waits = std::fs::read_to_string(entry.path().join("wchan")).is_ok_and(|at| at.contains("pipe"));
        (is_ours && waits && name.starts_with(b"sandbar-worker")).then_some(pid)
    })
}
