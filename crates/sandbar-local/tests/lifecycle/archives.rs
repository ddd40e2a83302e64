//! Trees in and out as archives: large ones in little memory, and what happens when somebody dies half-way.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::oneshot;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_archive::Pack;
use sandbar_core::{
    ByteStream, Command, CreateOptions, ErrorKind, FilesExt, GuestPath, Resources, Sandbox, SandboxExt,
    SandboxProvider,
};
use sha2::{Digest, Sha256};

use crate::support::{Bed, agent_pid, create, descendants, end_shim, eventually, kill, shim_pid, size};

/// Most memory of the program that moves archives, in KiB: the bar is 32 MiB.
const PEAK: u64 = 32 << 10;
/// The same of a shim, which has no part in it.
const SHIM_PEAK: u64 = 64 << 10;
/// Bytes of a tar block.
const BLOCK: usize = 512;

/// Programs that move archives in this sandbox.
fn movers(bed: &Bed, sandbox: &dyn Sandbox) -> Vec<i32> {
    let named = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sandbar-archive")
    };
    descendants(agent_pid(bed, sandbox.id())).into_iter().filter(named).collect()
}

/// What a process held in memory at most, in KiB.
fn peak(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

fn check_peaks(bed: &Bed, sandbox: &dyn Sandbox, movers: &[i32], what: &str) {
    let peaks: Vec<_> = movers.iter().filter_map(|pid| peak(*pid)).collect();
    let shim = shim_pid(bed, sandbox.id()).and_then(peak);
    println!("{what}: at most {peaks:?} KiB, and {shim:?} KiB of the shim");
    assert!(!peaks.is_empty() && peaks.iter().all(|kib| *kib <= PEAK), "{what}: {peaks:?} KiB");
    assert!(shim.is_some_and(|kib| kib <= SHIM_PEAK), "{what}: {shim:?} KiB of the shim");
}

fn at(path: &str) -> GuestPath {
    GuestPath::new(path).expect("a path")
}

async fn hidden(sandbox: &dyn Sandbox) -> usize {
    let find = Command::shell("find / -xdev -name '.sandbar-import-*' -prune 2>/dev/null | wc -l");
    sandbox.commands().run(&find).await.expect("a count").stdout_lossy().trim().parse().expect("a number")
}

/// A tar of one file of so many zeros, in pieces.
fn zeros(name: &str, size: u64) -> ByteStream {
    const PIECE: usize = 1 << 20;
    let mut header = vec![0; BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    // Base 256, as it may be more than octal digits can say.
    header[124] = 0x80;
    header[128..136].copy_from_slice(&size.to_be_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let piece = Bytes::from(vec![0; PIECE]);
    let left = size.next_multiple_of(BLOCK as u64) + 2 * BLOCK as u64;
    let body = stream::unfold(left, move |left| {
        let piece = piece.slice(..usize::try_from(left.min(PIECE as u64)).expect("small"));
        async move { (left > 0).then(|| (Ok(piece.clone()), left - piece.len() as u64)) }
    });
    stream::once(async move { Ok(Bytes::from(header)) }).chain(body).boxed()
}

/// One large file out of and into a sandbox that has 64 MiB of memory. The size is in MiB.
#[tokio::test]
async fn large_files_pass_in_little_memory() {
    let mib = size(256);
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = match provider
        .create(CreateOptions::new().with_resources(Resources::default().with_memory_bytes(64 << 20)))
        .await
    {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("without a limit on memory: {error}");
            create(&provider).await
        }
        sandbox => sandbox.expect("a sandbox"),
    };
    let size = u64::from(mib) << 20;
    let archive = sandbox.require_archive().expect("archives");
    let make = Command::shell(format!("mkdir out && truncate -s {size} out/file && printf x >> out/file"));
    assert!(sandbox.commands().run(&make).await.expect("an end").status.is_success());
    let mut out = archive.export(&at("/home/user/out")).await.expect("an archive");
    let mut came = 0;
    let mut looked = false;
    while let Some(piece) = out.try_next().await.expect("a piece") {
        came += piece.len() as u64;
        if !looked && came > size / 10 * 9 {
            looked = true;
            check_peaks(&bed, &*sandbox, &movers(&bed, &*sandbox), "export of a large file");
        }
    }
    assert!(looked && came > size);

    let mut fed = 0;
    let (bed_ref, looked_at) = (&bed, sandbox.clone());
    let (seen, mut is_seen) = oneshot::channel();
    let mut seen = Some(seen);
    let pids = Arc::new(std::sync::Mutex::new(None));
    let noted = pids.clone();
    let agent = agent_pid(bed_ref, looked_at.id());
    let tar = zeros("file", size).inspect_ok(move |piece| {
        fed += piece.len() as u64;
        if fed > size / 10 * 9
            && let Some(seen) = seen.take()
        {
            let movers = descendants(agent);
            *noted.lock().expect("a lock") = Some(
                movers
                    .into_iter()
                    .filter_map(|pid| {
                        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
                        (name.trim() == "sandbar-archive").then(|| peak(pid)).flatten()
                    })
                    .collect::<Vec<_>>(),
            );
            let _ = seen.send(());
        }
    });
    let report = archive.import(&at("/home/user/in"), tar.boxed()).await.expect("imported");
    assert_eq!((report.entries, report.bytes), (1, size));
    assert!(is_seen.try_recv().is_ok_and(|seen| seen.is_some()));
    let peaks = pids.lock().expect("a lock").take().expect("a look");
    println!("import of a large file: at most {peaks:?} KiB");
    assert!(!peaks.is_empty() && peaks.iter().all(|kib| *kib <= PEAK), "{peaks:?} KiB");
    let stat = Command::shell("stat -c '%s %b' in/file");
    let told = sandbox.commands().run(&stat).await.expect("an end").stdout_lossy().trim().to_owned();
    assert_eq!(told, format!("{size} 0"), "zeros take no room");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after a large file").await;
}

/// A tree of many files, in and out: what comes out is byte for byte what went in.
#[tokio::test]
async fn trees_pass_as_archives() {
    let files = size(5000);
    let Some(bed) = Bed::new() else { return };
    let tree = bed.scratch().join("tree");
    fill(&tree, files);
    let sandbox = create(&bed.provider()).await;
    let archive = sandbox.require_archive().expect("archives");
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Bytes>(2);
    let packing = std::thread::spawn(move || {
        let mut pieces = Pieces { sender, digest: Sha256::new() };
        let top = fs::File::open(&tree).expect("the tree");
        let report = Pack::new().run(top.as_fd(), b"tree", &mut pieces).expect("packed");
        (report, pieces.digest.finalize())
    });
    let imported = archive
        .import(
            &at("/home/user/in"),
            stream::poll_fn(move |context| receiver.poll_recv(context).map(|piece| piece.map(Ok))).boxed(),
        )
        .await
        .expect("imported");
    let (packed, before) = packing.join().expect("a thread");
    assert_eq!((imported.entries, imported.bytes), (packed.entries, packed.bytes));
    assert!(imported.entries > u64::from(files));
    let mut out = archive.export(&at("/home/user/in/tree")).await.expect("an archive");
    let mut digest = Sha256::new();
    let mut looked = false;
    let mut came = 0;
    while let Some(piece) = out.try_next().await.expect("a piece") {
        digest.update(&piece);
        came += piece.len() as u64;
        if !looked && came > packed.bytes {
            looked = true;
            check_peaks(&bed, &*sandbox, &movers(&bed, &*sandbox), "export of a tree");
        }
    }
    assert!(looked);
    assert!(digest.finalize() == before, "the tree came back changed");
    assert_eq!(hidden(&*sandbox).await, 0);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after a tree").await;
}

/// Writes into a channel, and remembers what.
struct Pieces {
    sender: tokio::sync::mpsc::Sender<Bytes>,
    digest: Sha256,
}

impl std::io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.digest.update(bytes);
        let sent = self.sender.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map(|()| bytes.len()).map_err(std::io::Error::other)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn fill(top: &Path, files: u32) {
    for number in 0..files {
        let folder = top.join(format!("part {}", number / 1000)).join(format!("d{}", number / 20 % 50));
        if number % 20 == 0 {
            fs::create_dir_all(&folder).expect("a folder");
        }
        let path = folder.join(format!("file-{number}.txt"));
        match number % 20 {
            3 => std::os::unix::fs::symlink(format!("file-{}.txt", number - 1), path).expect("a link"),
            4 => fs::hard_link(folder.join(format!("file-{}.txt", number - 4)), path).expect("a link"),
            _ => fs::write(path, format!("content of {number}\n").repeat(1 + number as usize % 40))
                .expect("a file"),
        }
    }
}

/// A tar whose rest never comes: what there is of it is on its way when the receiver hears of it.
fn stuck() -> (ByteStream, oneshot::Receiver<()>) {
    let (taken, was_taken) = oneshot::channel();
    let mut taken = Some(taken);
    let rest = stream::poll_fn(move |_| {
        let _ = taken.take().map(|taken| taken.send(()));
        std::task::Poll::Pending
    });
    (zeros("file", 3 << 20).take(2).chain(rest).boxed(), was_taken)
}

#[tokio::test]
async fn a_killed_import_is_an_error_and_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let (tar, was_taken) = stuck();
    let (importing, bed_ref, killed) = (sandbox.clone(), &bed, sandbox.clone());
    let import =
        tokio::spawn(
            async move { importing.require_archive()?.import(&at("/home/user/new/deep"), tar).await },
        );
    was_taken.await.expect("taken");
    eventually("it is at work", async || hidden(&*killed).await == 1).await;
    movers(bed_ref, &*sandbox).into_iter().for_each(kill);
    // The agent hears of it when it has something to hand over, or when the client leaves.
    import.abort();
    eventually("nothing of it is left", async || hidden(&*sandbox).await == 0).await;
    let left = sandbox.files().list(&at("/home/user")).await.expect("a list");
    assert!(left.is_empty(), "{left:?}");
    // And with the rest there, it is an answer.
    let tar = zeros("file", 64 << 20).inspect_ok({
        let agent = agent_pid(&bed, sandbox.id());
        let mut pieces = 0;
        move |_| {
            pieces += 1;
            if pieces == 20 {
                descendants(agent)
                    .into_iter()
                    .filter(|pid| {
                        fs::read_to_string(format!("/proc/{pid}/comm"))
                            .is_ok_and(|name| name.trim() == "sandbar-archive")
                    })
                    .for_each(kill);
            }
        }
    });
    let error = sandbox
        .require_archive()
        .expect("archives")
        .import(&at("/home/user/new"), tar.boxed())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("killed"), "{error}");
    eventually("nothing of it is left", async || hidden(&*sandbox).await == 0).await;
    assert!(sandbox.files().list(&at("/home/user")).await.expect("a list").is_empty());
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after an import that was killed").await;
}

#[tokio::test]
async fn an_import_outlives_its_shim() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let sandbox = create(&provider).await;
    let (go, going) = oneshot::channel::<()>();
    let (taken, was_taken) = oneshot::channel();
    let rest = stream::once(async move {
        let _ = taken.send(());
        let _ = going.await;
        Ok(Bytes::new())
    });
    let whole: Vec<_> = zeros("file", 3 << 20).try_collect().await.expect("pieces");
    let (start, end) = whole.split_at(2);
    let list = |pieces: &[Bytes]| stream::iter(pieces.iter().cloned().map(Ok).collect::<Vec<_>>());
    let tar = list(start).chain(rest).chain(list(end)).boxed();
    let importing = sandbox.clone();
    let import =
        tokio::spawn(async move { importing.require_archive()?.import(&at("/home/user/new"), tar).await });
    was_taken.await.expect("taken");
    end_shim(&bed, sandbox.id()).await;
    let _ = go.send(());
    // Whatever the answer is, it is true.
    let imported = import.await.expect("a task");
    let there = sandbox.files().exists(&at("/home/user/new/file")).await.expect("a look");
    assert_eq!(imported.is_ok(), there, "{imported:?}");
    assert_eq!(hidden(&*sandbox).await, 0);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after an import that lost its shim").await;
}

#[tokio::test]
async fn an_early_answer_to_a_long_body_is_heard() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let bad = stream::once(async { Ok(Bytes::from(vec![b'x'; 1 << 20])) });
    let tar = bad.chain(zeros("file", 256 << 20)).boxed();
    let error =
        sandbox.require_archive().expect("archives").import(&at("/home/user/new"), tar).await.unwrap_err();
    assert!(error.to_string().contains("not a tar archive"), "{error}");
    let denied = sandbox
        .require_archive()
        .expect("archives")
        .import(&at("/usr/lib/new"), zeros("file", 64 << 20))
        .await;
    let error = denied.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied), "{error}");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after a refused import").await;
}

#[tokio::test]
async fn what_can_not_be_read_cuts_an_export_off() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let make = Command::shell("mkdir -p top/z && head -c 3000000 /dev/zero > top/a && chmod 0 top/z");
    assert!(sandbox.commands().run(&make).await.expect("an end").status.is_success());
    let mut out = sandbox
        .require_archive()
        .expect("archives")
        .export(&at("/home/user/top"))
        .await
        .expect("a beginning");
    let mut last = Bytes::new();
    let error = loop {
        match out.next().await {
            Some(Ok(piece)) => last = piece,
            Some(Err(error)) => break Some(error),
            None => break None,
        }
    };
    let error = error.expect("an error");
    assert!(!last.is_empty(), "it began: {error}");
    assert!(out.next().await.is_none());
    // At the top, there is no beginning.
    let denied = sandbox.require_archive().expect("archives").export(&at("/home/user/top/z")).await;
    assert_eq!(denied.err().expect("an error").kind(), ErrorKind::PermissionDenied);
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after an export that was cut off").await;
}

/// An archive of a folder with a link in it.
fn with_link(target: &str) -> ByteStream {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("file"), "content\n").expect("a file");
    std::os::unix::fs::symlink(target, folder.path().join("link")).expect("a link");
    let mut tar = Vec::new();
    Pack::new().run(fs::File::open(folder.path()).expect("a folder").as_fd(), b"", &mut tar).expect("packed");
    stream::iter([Ok(Bytes::from(tar))]).boxed()
}

#[tokio::test]
async fn absolute_links_are_taken_where_they_stay_inside() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let archives = sandbox.require_archive().expect("archives");
    for place in ["/home/user/app", "/home/user/app/"] {
        archives.import(&at(place), with_link("/home/user/app/file")).await.expect("imported");
        let path = at("/home/user/app/link");
        assert_eq!(sandbox.files().read(&path).await.expect("read"), "content\n", "{place}");
    }
    // What goes out so comes in again at the same place.
    let tree = archives.export(&at("/home/user/app")).await.expect("exported");
    archives.import(&at("/home/user"), tree).await.expect("imported");
    for target in ["/etc/passwd", "/home/user/other", "/home/user/app/../other", "/"] {
        let error = archives.import(&at("/home/user/new"), with_link(target)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{target}: {error}");
        assert!(error.message().contains("link"), "{target}: {error}");
        assert!(!sandbox.files().exists(&at("/home/user/new")).await.expect("a look"), "{target}");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after links").await;
}

#[tokio::test]
async fn a_file_above_the_limit_on_disk_is_named() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new().with_resources(Resources::default().with_disk_bytes(64 << 20));
    let sandbox = bed.provider().create(options).await.expect("a sandbox");
    let tar = zeros("big.bin", 80 << 20);
    let archive = sandbox.require_archive().expect("archives");
    let error = archive.import(&at("/home/user/in"), tar).await.expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error:?}");
    assert!(error.message().contains("big.bin"), "{error:?}");
    assert_eq!(hidden(&*sandbox).await, 0);
    assert!(sandbox.files().stat(&at("/home/user/in")).await.expect("an answer").is_none());
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}
