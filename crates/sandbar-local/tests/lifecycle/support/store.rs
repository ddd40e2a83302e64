use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the file that a file system is made in. It is sparse, and what is written in it is on the disk that the tests are on.
const SIZE: u64 = 2 << 30;
/// How long it may stay in use after its last sandbox: the kernel takes down the mounts of ended processes in its own time.
const UNMOUNT: Duration = Duration::from_secs(10);

/// A file system that is made for a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Btrfs,
    Xfs,
}

/// One on a loop device, for data folders.
pub(crate) struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    /// Makes and mounts one; `None`, with the reason printed, where that can't be done.
    pub(crate) fn new(kind: FileSystem) -> Option<Self> {
        Self::sized(kind, SIZE)
    }

    /// The same in a file of `size` bytes.
    pub(crate) fn sized(kind: FileSystem, size: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root makes and mounts file systems");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("sandbar-store-").tempdir().expect("a temporary folder");
        let store = Self { folder };
        let image = store.folder.path().join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(size)).expect("a file");
        std::fs::create_dir(store.path()).expect("a folder");
        let (program, name) = match kind {
            FileSystem::Btrfs => ("mkfs.btrfs", "btrfs"),
            FileSystem::Xfs => ("mkfs.xfs", "xfs"),
        };
        let made = run(Command::new(program).arg("-q").arg(&image)).and_then(|()| {
            run(Command::new("mount").args(["-t", name, "-o", "loop"]).arg(&image).arg(store.path()))
        });
        match made {
            Ok(()) => Some(store),
            Err(why) => {
                println!("skipped: no {name} on a loop device here: {why}");
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// Unmounts what is mounted there; what is in use for too long goes when it is not any more.
pub(crate) fn unmount(path: &Path) {
    let end = Instant::now() + UNMOUNT;
    while run(Command::new("umount").arg(path)).is_err_and(|why| why.contains("busy")) {
        if Instant::now() >= end {
            let _ = run(Command::new("umount").arg("-l").arg(path));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command to its successful end; what it says otherwise.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{name}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
