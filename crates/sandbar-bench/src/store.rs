use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar::SandboxProvider;

use crate::bed::{Bed, connect, finish};

/// Bytes of the file that a file system is made in, which is sparse.
const SIZE: u64 = 16 << 30;
/// How long it may stay in use after its last sandbox.
const UNMOUNT: Duration = Duration::from_secs(10);

/// A data folder on a file system of its own, on a loop device.
pub(crate) struct Store {
    pub(crate) provider: Arc<dyn SandboxProvider>,
    folder: PathBuf,
    _mounted: Mounted,
}

impl Store {
    /// Makes one by `mkfs.NAME`; the text of an error says why there can be none here.
    pub(crate) fn new(bed: &Bed, name: &'static str) -> Result<Self, String> {
        let image = bed.folder().join(format!("{name}.image"));
        let folder = bed.folder().join(name);
        let broken = |why: std::io::Error| format!("{}: {why}", folder.display());
        std::fs::File::create(&image).and_then(|file| file.set_len(SIZE)).map_err(broken)?;
        std::fs::create_dir(&folder).map_err(broken)?;
        let quiet = |command: &mut Command| finish(command.stdout(Stdio::null()).stderr(Stdio::null()));
        let mounted = Mounted { image, folder: folder.clone() };
        let make = format!("mkfs.{name}");
        quiet(Command::new(&make).arg("-q").arg(&mounted.image))?;
        quiet(Command::new("mount").args(["-t", name, "-o", "loop"]).arg(&mounted.image).arg(&folder))?;
        let provider = connect(&bed.runtime, &folder.join("home"))?;
        Ok(Self { provider, folder, _mounted: mounted })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

struct Mounted {
    image: PathBuf,
    folder: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let end = Instant::now() + UNMOUNT;
        let unmount = |more: &[&str]| {
            finish(Command::new("umount").args(more).arg(&self.folder).stderr(Stdio::null())).is_ok()
        };
        while !unmount(&[]) {
            if Instant::now() >= end {
                // It goes when nothing uses it any more.
                let _ = unmount(&["-l"]);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_file(&self.image);
    }
}
