use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use http::header::HeaderMap;
use hyper::body::Incoming;
use rustix::fs::OFlags;
use sandbar_wire::envd::{ComposeRequest, FileEntry, HttpError};

use super::access::Access;
use super::upload::entry;
use super::write::failed;
use crate::blocking;
use crate::filesystem::{Context, make_parents};
use crate::http::{Response, basic_user, from_rpc, json, read_all};
use crate::state::State;

/// Largest request, in bytes; the files themselves are here already.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// `POST /files/compose`: the destination appears in one step, then the sources go.
pub(crate) async fn compose(
    state: &State,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, HttpError> {
    let body = read_all(body, MAX_REQUEST_BYTES).await?;
    let request: ComposeRequest = serde_json::from_slice(&body)
        .map_err(|error| HttpError::new(400, format!("read the body: {error}")))?;
    let user = match &request.username {
        Some(name) => Some(name.clone()),
        None => basic_user(headers).map_err(from_rpc)?,
    };
    let access = Access::of(state, user.as_deref(), None)?;
    if request.source_paths.is_empty() || request.destination.is_empty() {
        return Err(HttpError::new(400, "compose needs `source_paths` and a `destination`"));
    }
    let sources: Vec<PathBuf> = request.source_paths.iter().map(|path| access.resolve(path)).collect();
    let destination = access.resolve(&request.destination);
    let context = access.context.clone();
    let entry = blocking::run(move || join(&context, &sources, &destination)).await;
    Ok(json(200, &entry??))
}

fn join(context: &Context, sources: &[PathBuf], destination: &Path) -> Result<FileEntry, HttpError> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| failed(&path, &error)
    };
    if destination.is_dir() {
        return Err(HttpError::new(400, format!("path '{}' is a directory", destination.display())));
    }
    for source in sources {
        if !fs::metadata(source).map_err(fail(source))?.is_file() {
            return Err(HttpError::new(400, format!("path '{}' is not a regular file", source.display())));
        }
    }
    make_parents(context, destination).map_err(fail(destination))?;
    let temporary = Temporary::new(destination).map_err(fail(destination))?;
    for source in sources {
        let mut file = open(source).map_err(fail(source))?;
        io::copy(&mut file, &mut &temporary.file).map_err(fail(destination))?;
    }
    if let Some((uid, gid)) = context.owner {
        std::os::unix::fs::fchown(&temporary.file, Some(uid), Some(gid)).map_err(fail(destination))?;
    }
    temporary.rename(destination).map_err(fail(destination))?;
    for source in sources.iter().filter(|source| *source != destination) {
        match fs::remove_file(source) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(source, &error)),
            _ => {}
        }
    }
    Ok(entry(destination))
}

/// Opening never waits, as what came in a file's place since it was looked at might make it.
fn open(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// A new file beside its later name, which goes away unless it is renamed.
struct Temporary {
    file: File,
    path: PathBuf,
    renamed: bool,
}

/// How many names are tried before giving up.
const MAX_NAMES: u32 = 100;

impl Temporary {
    fn new(destination: &Path) -> io::Result<Self> {
        let folder = destination.parent().unwrap_or(Path::new("/"));
        for number in 0..MAX_NAMES {
            let path = folder.join(format!(".compose-{number}.tmp"));
            match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&path) {
                Ok(file) => return Ok(Self { file, path, renamed: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, "too many temporary files in the folder"))
    }

    fn rename(mut self, destination: &Path) -> io::Result<()> {
        fs::rename(&self.path, destination)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}
