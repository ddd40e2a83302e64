use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command as HostCommand, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::inotify;
use sandbar::Command;
use serde_json::json;

use super::client::Client;
use super::served::Served;
use crate::bed::{Bed, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

/// Files that are written.
const FILES: usize = 200;
/// Between two of them, in milliseconds.
const REST_MS: u64 = 5;
/// How long the next event may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The watched folder in the sandbox.
const FOLDER: &str = "/tmp/watched";
/// Writes files whose names say when.
const PROGRAM: &str = r"
import sys, time
folder, count, rest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    time.sleep(rest / 1000)
    with open(f'{folder}/at-{time.time_ns()}', 'w') as file:
        file.write('x')
";

/// From a write in the sandbox to its event at a client of the server.
pub(crate) fn events(bed: &Bed) -> Result<Vec<Row>, String> {
    let served = Served::start(bed)?;
    let files = bed.rounds(FILES);
    let there = bed.folder().join("watched");
    std::fs::create_dir(&there).map_err(|why| why.to_string())?;
    let theirs = on_host(&there, files)?;
    let _ = std::fs::remove_dir_all(&there);
    let ours = bed.runtime.block_on(inside(&served, files))?;
    let peer = Peer::measured("an inotify watch on the host, of the same program's writes", theirs);
    let what = "event of a watched folder, from the write to the client of the server";
    Ok(vec![Row::new("server-watch", what, "ms", ours, peer, Bar::AtMost(10.0))])
}

async fn inside(served: &Served<'_>, files: usize) -> Result<Samples, String> {
    let guest = served.create().await?;
    let mut samples = Samples::default();
    let run = async |command: Command| {
        let output = guest.sandbox.commands().run(&command).await.map_err(|error| error.to_string())?;
        if output.status.is_success() {
            Ok(())
        } else {
            Err(format!("the writer: {}", output.stderr_lossy()))
        }
    };
    run(Command::new("mkdir").arg(FOLDER)).await?;
    let mut client = Client::connect(served.address).await?;
    let watch = json!({"path": FOLDER});
    let mut messages = client.stream("/filesystem.Filesystem/WatchDir", &guest.headers(), &watch).await?;
    let first =
        tokio::time::timeout(PATIENCE, messages.next()).await.map_err(|_| "the watch did not begin")?;
    first?.ok_or("the watch ended at once")?;
    let arguments = [FOLDER.to_owned(), files.to_string(), REST_MS.to_string()];
    let writing = run(Command::new("python3").arg("-c").arg(PROGRAM).args(arguments));
    let seeing = async {
        let (mut seen, mut last) = (0, String::new());
        while seen < files {
            let message = tokio::time::timeout(PATIENCE, messages.next()).await;
            let message = message.map_err(|_| format!("{seen} of {files} files were seen"))??;
            let message = message.ok_or("the watch ended")?;
            let name = message["filesystem"]["name"].as_str().unwrap_or_default();
            // A file has several events: the first one counts.
            if let Some(took) = age(name).filter(|_| name != last) {
                samples.took(took, Ok(()));
                (seen, last) = (seen + 1, name.to_owned());
            }
        }
        Ok::<_, String>(())
    };
    futures::try_join!(writing, seeing)?;
    Ok(samples)
}

/// The same with the kernel's own watch.
fn on_host(folder: &Path, files: usize) -> Result<Samples, String> {
    let text = |why: io::Error| why.to_string();
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(|why| text(why.into()))?;
    inotify::add_watch(&watch, folder, inotify::WatchFlags::CREATE).map_err(|why| text(why.into()))?;
    let mut command = HostCommand::new("python3");
    command.args(["-c", PROGRAM]).arg(folder).args([files.to_string(), REST_MS.to_string()]);
    command.stdin(Stdio::null());
    let mut samples = Samples::default();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| finish(&mut command));
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&watch, &mut room);
        for _ in 0..files {
            let event = reader.next().map_err(|why| text(why.into()))?;
            let name = event.file_name().map(|name| name.to_string_lossy().into_owned());
            let took = age(&name.unwrap_or_default()).ok_or("an event of another file")?;
            samples.took(took, Ok(()));
        }
        writing.join().map_err(|_| "the writer has no end".to_owned())?
    })?;
    Ok(samples)
}

/// How long ago a file was written, by its name.
fn age(name: &str) -> Option<Duration> {
    let at = name.rsplit_once("at-")?.1.parse().ok()?;
    SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_nanos(at)).ok()
}
