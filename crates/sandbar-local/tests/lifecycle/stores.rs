//! Data folders on file systems that do more than others: what a fork is by there, and what is left.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use sandbar_core::{ErrorKind, Sandbox, SandboxExt, State};
use sandbar_local::{PruneMode, PruneOptions};

use crate::forks::{self, end, fork, text};
use crate::long::helper;
use crate::support::{
    Bed, FileSystem, Store, agent_pid, create, eventually, kill, run, shim_pid, size, unmount,
};

/// The inode of a subvolume's top folder.
const TOP: u64 = 256;

/// A data folder on such a file system. The bed goes first.
fn bed(kind: FileSystem) -> Option<(Bed, Store)> {
    let store = Store::new(kind)?;
    Some((Bed::below(&store.path())?, store))
}

/// Subvolumes below a folder.
fn subvolumes(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| {
            let is_top = entry.metadata().is_ok_and(|meta| meta.ino() == TOP);
            usize::from(is_top) + subvolumes(&entry.path())
        })
        .sum()
}

/// Removes what nobody needs, and asserts that no layer stays.
async fn tidy(bed: &Bed) {
    let options = PruneOptions::new().with_mode(PruneMode::Remove);
    let report = bed.provider().prune(options).await.expect("pruned");
    assert!(report.problems.is_empty() && report.items.iter().all(|item| item.removed), "{report:?}");
    let left = std::fs::read_dir(bed.home().join("layers")).expect("layers").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != "lock").collect();
    assert!(left.iter().all(|name| name == "cache" || name == "pins"), "{left:?}");
    assert_eq!(subvolumes(&bed.home()), 0);
}

/// Has something run in it, so that it is no case for `layer`.
async fn busy(sandbox: &dyn Sandbox) {
    text(sandbox, "sleep 4000 </dev/null >/dev/null 2>&1 &").await;
}

#[tokio::test]
async fn on_btrfs_live_writers_are_forked_by_snapshots() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    let parent = create(&bed.provider()).await;
    forks::of_writers(&bed, &*parent, size(3), &["subvolume"]).await;
    tidy(&bed).await;
}

#[tokio::test]
async fn on_xfs_live_writers_are_forked_by_shared_bytes() {
    let Some((bed, _store)) = bed(FileSystem::Xfs) else { return };
    let parent = create(&bed.provider()).await;
    forks::of_writers(&bed, &*parent, size(3), &["reflink"]).await;
    tidy(&bed).await;
}

#[tokio::test]
async fn on_btrfs_without_a_subvolume_bytes_are_shared() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    let parent = stopped(&bed, &*create(&bed.provider()).await).await;
    // As a sandbox has it that was made before this file system was known to do more.
    let written = bed.folder(parent.id()).join("fs");
    assert_eq!(std::fs::metadata(&written).expect("layers").ino(), TOP);
    let plain = written.with_file_name("plain");
    run(std::process::Command::new("cp").args(["-a", "--reflink=always"]).arg(&written).arg(&plain))
        .expect("copied");
    std::fs::remove_dir_all(&written).expect("removed");
    std::fs::rename(&plain, &written).expect("renamed");
    parent.require_pausing().expect("pausing").resume().await.expect("started");
    forks::of_writers(&bed, &*parent, size(2), &["reflink"]).await;
    tidy(&bed).await;
}

/// Ends all its processes.
async fn stopped(bed: &Bed, sandbox: &dyn Sandbox) -> Arc<dyn Sandbox> {
    use sandbar_core::ProviderExt as _;
    kill(shim_pid(bed, sandbox.id()).expect("a shim"));
    kill(agent_pid(bed, sandbox.id()));
    let is_stopped = async || sandbox.record().await.expect("a record").state == State::Stopped;
    eventually("it is found stopped", is_stopped).await;
    bed.provider().require(sandbox.id()).await.expect("a handle")
}

/// By snapshots and by layers, one on the other, more than a stack has.
#[tokio::test]
async fn on_btrfs_each_generation_has_its_files() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    let mut current = create(&bed.provider()).await;
    text(&*current, "mkdir ~/all; echo 0 > ~/common; echo old > /tmp/gone; echo 0 > /tmp/common").await;
    for n in 1..=size(15) {
        let wanted = if n % 4 == 0 { "layer" } else { "subvolume" };
        if wanted == "subvolume" {
            busy(&*current).await;
        }
        let (copy, outcome) = fork(&*current).await;
        assert_eq!((outcome.mechanism.as_str(), outcome.copied_bytes), (wanted, 0), "generation {n}");
        let before = n - 1;
        let script = format!(
            "[ $(cat ~/common)$(cat /tmp/common) = {before}{before} ] && echo {n} | tee ~/common ~/all/{n} > /tmp/common && rm -rf /tmp/gone && mkdir /tmp/gone && touch /tmp/gone/{n} && ls /tmp/gone && ls ~/all | wc -l"
        );
        assert_eq!(text(&*copy, &script).await, format!("{n}\n{n}"), "generation {n}");
        assert_eq!(text(&*current, "cat ~/common; ls ~/all | wc -l").await, format!("{before}\n{before}"));
        std::mem::replace(&mut current, copy).destroy().await.expect("destroyed");
    }
    end(&bed, &[&*current]).await;
    tidy(&bed).await;
}

#[tokio::test]
async fn on_btrfs_a_sleeper_and_a_stopped_one_are_forked_and_stay_so() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    let parent = create(&bed.provider()).await;
    busy(&*parent).await;
    text(&*parent, "echo kept > ~/file; echo too > /tmp/file").await;
    parent.require_pausing().expect("pausing").hibernate().await.expect("asleep");
    let (of_sleeper, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "subvolume");
    assert_eq!(parent.record().await.expect("a record").state, State::Sleeping);
    parent.require_pausing().expect("pausing").resume().await.expect("awake");
    let parent = stopped(&bed, &*parent).await;
    let (of_stopped, outcome) = fork(&*parent).await;
    assert_eq!((outcome.mechanism.as_str(), outcome.copied_bytes), ("layer", 0));
    for copy in [&of_sleeper, &of_stopped] {
        assert_eq!(text(&**copy, "cat ~/file /tmp/file; echo more >> ~/file").await, "kept\ntoo");
    }
    end(&bed, &[&*parent, &*of_sleeper, &*of_stopped]).await;
    tidy(&bed).await;
}

#[tokio::test]
async fn on_btrfs_a_shim_killed_in_a_snapshot_leaves_nothing() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    forks::killed_while_copying(&bed).await;
    tidy(&bed).await;
}

#[tokio::test]
async fn on_xfs_a_shim_killed_in_a_copy_leaves_nothing() {
    let Some((bed, _store)) = bed(FileSystem::Xfs) else { return };
    forks::killed_while_copying(&bed).await;
    tidy(&bed).await;
}

/// Snapshots count in what the data folder takes, and are found by who tidies up after a crash.
#[tokio::test]
async fn on_btrfs_snapshots_are_measured_and_swept() {
    let Some((bed, _store)) = bed(FileSystem::Btrfs) else { return };
    let parent = create(&bed.provider()).await;
    busy(&*parent).await;
    text(&*parent, "head -c 20000000 /dev/urandom > ~/data; sync ~/data").await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "subvolume");
    let usage = bed.provider().disk_usage().await.expect("measured");
    for share in [usage.layers, usage.sandboxes] {
        assert!(share.bytes.is_some_and(|bytes| bytes >= 20_000_000), "{usage:?}");
    }
    // As after a crash between the snapshot and its name.
    let wreck = bed.home().join("layers/.new-wreck");
    std::fs::create_dir(&wreck).expect("a folder");
    run(std::process::Command::new("btrfs")
        .args(["-q", "subvolume", "snapshot"])
        .arg(bed.folder(parent.id()).join("fs"))
        .arg(wreck.join("fs")))
    .expect("a snapshot");
    let report = bed.provider().prune(PruneOptions::new()).await.expect("looked");
    let found =
        report.items.iter().find(|item| item.name.contains(".new-wreck")).expect("the wreck is found");
    assert!(found.bytes.is_some_and(|bytes| bytes >= 20_000_000), "{found:?}");
    end(&bed, &[&*parent, &*copy]).await;
    tidy(&bed).await;
}

/// What was written, in MiB: five GiB for the long run.
fn much() -> u32 {
    if std::env::var_os("SANDBAR_SOAK").is_some() { 5 * 1024 } else { 16 }
}

#[tokio::test]
async fn on_btrfs_nothing_is_copied_however_much_was_written() {
    let Some(store) = Store::sized(FileSystem::Btrfs, 16 << 30) else { return };
    let Some(bed) = Bed::below(&store.path()) else { return };
    let parent = create(&bed.provider()).await;
    busy(&*parent).await;
    // Marked at both ends, and waiting to be written for the most part.
    let write = format!("head -c {}M /dev/zero | tr '\\0' x > ~/data; echo end >> ~/data", much());
    text(&*parent, &write).await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!((outcome.mechanism.as_str(), outcome.copied_bytes), ("subvolume", 0));
    text(&*parent, "echo its > ~/data").await;
    let seen = text(&*copy, "stat -c %s ~/data; tail -c 4 ~/data; head -c 3 ~/data").await;
    assert_eq!(seen, format!("{}\nend\nxxx", u64::from(much()) * 1024 * 1024 + 4));
    end(&bed, &[&*parent, &*copy]).await;
}

/// A store in a file, and its end: it is unmounted before the bed goes.
struct InFile(Bed);

impl Drop for InFile {
    fn drop(&mut self) {
        unmount(&self.0.home());
    }
}

/// `None`, with the reason printed, where no store can be made here.
async fn in_file() -> Option<InFile> {
    // Whether there are loop devices and the programs is seen by making one.
    drop(Store::new(FileSystem::Btrfs)?);
    let bed = Bed::new()?;
    // As an attempt that was killed leaves it.
    std::fs::DirBuilder::new().mode(0o700).create(bed.home()).expect("a folder");
    std::fs::write(bed.home().join(".version-store.btrfs"), "half of one").expect("a file");
    let store = bed.provider().init_store(STORE).await.expect("a store");
    assert_eq!((&store.home, store.size_bytes), (&bed.home(), STORE));
    Some(InFile(bed))
}

const STORE: u64 = 1 << 30;

#[tokio::test]
async fn a_store_in_a_file_is_mounted_again_by_whoever_comes_next() {
    let Some(InFile(bed)) = &in_file().await else { return };
    let parent = create(&bed.provider()).await;
    busy(&*parent).await;
    text(&*parent, "echo kept > ~/file").await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "subvolume");
    copy.destroy().await.expect("destroyed");
    let error = bed.provider().init_store(STORE).await.expect_err("refused");
    assert!(error.kind() == ErrorKind::AlreadyExists && error.message().contains("btrfs already"), "{error}");
    let id = parent.id().clone();
    let parent = stopped(bed, &*parent).await;
    // As a restart of the machine leaves it.
    unmount(&bed.home());
    assert!(
        bed.home().join("store.btrfs").exists() && !bed.home().join("sandboxes").join(id.as_str()).exists()
    );
    // Several at once: one mounts it.
    let opened = (0..4).map(|_| {
        let config = bed.config();
        std::thread::spawn(move || sandbar_local::LocalProvider::open(config).map(|_| ()))
    });
    for opening in opened.collect::<Vec<_>>() {
        opening.join().expect("no panic").expect("it opens");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let shown = format!(" {} ", bed.home().display());
    assert_eq!(mounts.lines().filter(|line| line.contains(&shown)).count(), 1);
    // Who has mounts of its own, and does not see it there, comes to the same file system.
    let script = "umount \"$0\" && SANDBAR_HOME=\"$0\" \"$1\" describe \"$2\" >/dev/null && touch \"$0/sandboxes/$2/seen\"";
    let mut apart = std::process::Command::new("unshare");
    apart.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    run(apart.arg(bed.home()).arg(helper()).arg(id.as_str())).expect("it is mounted there, too");
    std::fs::remove_file(bed.folder(&id).join("seen")).expect("it is the same");
    parent.require_pausing().expect("pausing").resume().await.expect("started");
    assert_eq!(text(&*parent, "cat ~/file").await, "kept");
    parent.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_store_that_is_in_a_wrong_state_says_what_to_do() {
    let Some(InFile(bed)) = &in_file().await else { return };
    let open = || sandbar_local::LocalProvider::open(bed.config()).map(|_| ()).expect_err("refused");
    unmount(&bed.home());
    // Somebody who does not know of it wrote to the folder.
    let beside = bed.home().join("sandboxes/other");
    std::fs::create_dir_all(&beside).expect("a folder");
    let error = open();
    assert!(error.message().contains("sandboxes/other") && error.hint().is_some(), "{error}");
    std::fs::remove_dir(&beside).expect("removed");
    // It is spoilt.
    let file = bed.home().join("store.btrfs");
    let size = std::fs::metadata(&file).expect("a file").len();
    let spoil = std::fs::File::options().write(true).open(&file).expect("a file");
    spoil.set_len(0).and_then(|()| spoil.set_len(size)).expect("emptied");
    let error = open();
    assert!(error.message().contains("can't be mounted"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("btrfs check")), "{error}");
    // It is somebody else's.
    std::fs::remove_file(&file).expect("removed");
    std::os::unix::fs::symlink("/etc/passwd", &file).expect("a link");
    assert!(open().message().contains("no file of root's"), "{}", open());
}

#[tokio::test]
async fn a_store_is_refused_over_content_and_leaves_nothing_then() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    if !rustix::process::geteuid().is_root() {
        let error = provider.init_store(STORE).await.expect_err("refused");
        assert!(
            error.kind() == ErrorKind::PermissionDenied && error.message().contains("only root"),
            "{error}"
        );
        return assert!(!bed.home().exists());
    }
    for (size, kind) in [(1 << 20, ErrorKind::InvalidInput), (1 << 60, ErrorKind::LimitExceeded)] {
        let error = provider.init_store(size).await.expect_err("refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!bed.home().exists(), "{size}");
    }
    let sandbox = create(&provider).await;
    let error = provider.init_store(STORE).await.expect_err("refused");
    assert!(error.kind() == ErrorKind::AlreadyExists && error.hint().is_some(), "{error}");
    let names = std::fs::read_dir(bed.home()).expect("a folder").flatten();
    assert!(names.map(|name| name.file_name()).all(|name| !name.to_string_lossy().contains("btrfs")));
    end(&bed, &[&*sandbox]).await;
}
