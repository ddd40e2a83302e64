use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

use hyper::body::Incoming;
use sandbar_wire::envd::{ARCHIVE_STAGING_DIGITS, ARCHIVE_STAGING_PREFIX, HttpError};

use super::export::{asked, killed};
use super::program::{Job, Program};
use crate::files::Query;
use crate::http::{Response, json, next_piece};
use crate::state::State;
use crate::users::User;

/// Bytes of a body that are still read after it was refused, so that a client that only sends gets to the answer.
const MAX_REFUSED: usize = 1 << 20;

/// The value of `root` by which a caller says that it means to import at `/` itself.
const MERGE: &str = "merge";

/// `POST /sandbar/archive`. It ends before the answer comes or not at all: a client that leaves has changed nothing.
pub(crate) async fn import(
    state: &Rc<State>,
    query: Option<&str>,
    mut body: Incoming,
) -> Result<Response, HttpError> {
    let (access, path) = asked(state, query)?;
    let is_meant = Query::parse(query)?.get("root").is_some_and(|word| word == MERGE);
    if path == Path::new("/") && !is_meant {
        return Err(HttpError::new(400, "nothing can be imported at path '/': name a folder below it"));
    }
    let staging = staging_name()?;
    let user = access.user;
    let mut program = Program::start(state, &user, Job::Import(&staging), &path).await?;
    // Where the client leaves, this is dropped, and what was staged goes.
    let cleaning = Cleaning { state, user: &user, path: &path, staging: &staging, armed: true };
    let fed = feed(&mut program, &mut body).await;
    if fed.is_ok() {
        program.go();
    }
    let outcome = program.outcome().await;
    if outcome.is_some() {
        cleaning.disarm();
    }
    // What kept the archive from coming is told, and not that it is cut short.
    fed?;
    outcome.unwrap_or_else(|| Err(killed())).map(|report| json(200, &report))
}

/// Hands over all of the body, or as much as is taken.
async fn feed(program: &mut Program, body: &mut Incoming) -> Result<(), HttpError> {
    let broken = |error: std::io::Error| HttpError::new(400, format!("read the body: {error}"));
    while let Some(piece) = next_piece(body).await.map_err(broken)? {
        if !program.input(piece).await.map_err(|error| HttpError::new(500, error.to_string()))? {
            pass(body).await;
            return Ok(());
        }
    }
    Ok(())
}

/// Takes a little more of a body that nobody wants.
async fn pass(body: &mut Incoming) {
    let mut passed = 0;
    while passed < MAX_REFUSED {
        match next_piece(body).await {
            Ok(Some(piece)) => passed += piece.len(),
            _ => return,
        }
    }
}

/// Removes what an import left that did not end by itself.
struct Cleaning<'a> {
    state: &'a Rc<State>,
    user: &'a User,
    path: &'a Path,
    staging: &'a str,
    armed: bool,
}

impl Cleaning<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Cleaning<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (state, user) = (self.state.clone(), self.user.clone());
        let (path, staging) = (self.path.to_owned(), self.staging.to_owned());
        tokio::task::spawn_local(async move {
            // It waits for the import itself, which holds a lock on what it staged.
            if let Ok(program) = Program::start(&state, &user, Job::Discard(&staging), &path).await {
                let _ = program.outcome().await;
            }
        });
    }
}

/// A name that nothing has: hidden, and not to be guessed.
fn staging_name() -> Result<String, HttpError> {
    let mut bytes = [0; ARCHIVE_STAGING_DIGITS / 2];
    let mut random = || std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes);
    random().map_err(|error| HttpError::new(500, format!("read `/dev/urandom`: {error}")))?;
    Ok(bytes.iter().fold(ARCHIVE_STAGING_PREFIX.to_owned(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    }))
}
