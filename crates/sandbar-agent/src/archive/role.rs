use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, stat};
use sandbar_archive::{Pack, Rules, Unpack, decompress};
use sandbar_engine::process;
use sandbar_wire::envd::{ArchiveReport, HttpError};

use super::outcome::{Outcome, of_archive, of_io};
use super::stage::{Stage, clean};

/// The word that what came is to stand. Its pipe ends without it where the sender did not come to an end.
pub(super) const GO: u8 = b'+';
/// The descriptor that it comes through.
const GO_FD: i32 = 3;

/// `main` of the program that moves archives: `args` without its name. It runs as the user whose files are meant. Returns the exit code.
pub fn archive_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let _ = rustix::thread::set_name(c"sandbar-archive");
    process::share_one_heap();
    process::outlive_file_size_limit();
    let args: Vec<OsString> = args.into_iter().collect();
    let args: Vec<&OsString> = args.iter().collect();
    let outcome = match args.as_slice() {
        [job, path] if *job == "export" => export(Path::new(path)),
        [job, path, name] if *job == "import" => import(Path::new(path), name),
        [job, path, name] if *job == "discard" => {
            clean(Path::new(path), name).map(|()| ArchiveReport::default())
        }
        _ => Err(HttpError::new(
            500,
            "the program that moves archives was started with other words than it knows",
        )),
    };
    let (outcome, code) = match outcome {
        Ok(report) => (Outcome::Done(report), 0),
        Err(error) => (Outcome::Failed(error), 1),
    };
    let text = serde_json::to_vec(&outcome).unwrap_or_default();
    // Whoever started it may have left.
    let _ = io::Write::write_all(&mut io::stderr(), &text);
    code
}

fn export(path: &Path) -> Result<ArchiveReport, HttpError> {
    let shown = path.display();
    // Opening never waits, as a pipe without a writer would.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tree = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => {
            HttpError::new(404, format!("path '{shown}' does not exist"))
        }
        rustix::io::Errno::NXIO => HttpError::new(400, format!("path '{shown}' is not a file or folder")),
        error => of_io(format_args!("read '{shown}'"), error),
    })?;
    let same = |one: rustix::fs::Stat, other: rustix::fs::Stat| {
        (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    };
    let is_root = stat("/").and_then(|root| Ok(same(root, fstat(&tree)?)));
    if is_root.map_err(|error| of_io(format_args!("read '{shown}'"), error))? {
        return Err(HttpError::new(400, format!("path '{shown}' leads to `/`, which can't be exported")));
    }
    let root = path.file_name().unwrap_or_default();
    let mut output =
        File::from(rustix::io::dup(rustix::stdio::stdout()).map_err(|error| of_io("write", error))?);
    let report = Pack::new().run(tree.as_fd(), root.as_bytes(), &mut output).map_err(of_archive)?;
    Ok(ArchiveReport { entries: report.entries, bytes: report.bytes })
}

fn import(path: &Path, name: &std::ffi::OsStr) -> Result<ArchiveReport, HttpError> {
    let mut go =
        File::from(process::take_descriptor(GO_FD).map_err(|error| of_io("read the word to go on", error))?);
    let stage = Stage::make(path, name)?;
    let input = File::from(rustix::io::dup(rustix::stdio::stdin()).map_err(|error| of_io("read", error))?);
    let mut tar = decompress(input).map_err(|error| of_io("read the archive", error))?;
    let rules = Rules::default().with_destination(path.as_os_str().as_bytes());
    let unpacked = Unpack::new(rules).run(&mut tar, stage.folder()?.as_fd());
    let report = unpacked.map_err(of_archive)?;
    let mut word = [0];
    if !matches!(go.read(&mut word), Ok(1)) || word[0] != GO {
        return Err(HttpError::new(400, "the archive is whole, and its sender did not come to an end"));
    }
    stage.commit()?;
    Ok(ArchiveReport { entries: report.entries, bytes: report.bytes })
}
