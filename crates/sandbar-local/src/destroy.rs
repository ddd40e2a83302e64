//! Destroying a sandbox, with its shim or without.

use std::time::Duration;

use sandbar_core::{EndCause, Result, SandboxId, State};
use sandbar_observe::Role;
use tokio::io::AsyncReadExt;

use crate::ask::{Answer, DESTRUCTION, ask, misplaced};
use crate::audit::{AuditedEnd, Left};
use crate::error::unknown;
use crate::home::{Folder, Home};
use crate::observe::is_overdue;
use crate::shim::protocol::{Op, Reply};
use crate::teardown::{self, Ending};
use crate::unseat::unseat;
use crate::wait::until_async;

const DESTROY: &str = "destroy";
/// How long a shim may take to begin with a destruction. It does so at once; what it serves can't keep it, so this is a frozen one.
const BEGINNING: Duration = Duration::from_secs(10);
/// As [`BEGINNING`], for one that let a deadline pass.
const LAST_CHANCE: Duration = Duration::from_secs(1);
/// How often a shim may come or go while it is being asked.
const ATTEMPTS: usize = 5;
/// How long somebody who guards a sandbox may take until it answers or lets go: a creation or an adoption in progress, or another destruction.
const CHANGE: Duration = Duration::from_secs(30);
/// How long the process of a shim may take to end after its last answer.
const PROCESS_END: Duration = Duration::from_secs(2);

/// Ends the sandbox `id`; `false` means that it was positively absent.
pub(crate) async fn destroy(home: &Home, id: &SandboxId) -> Result<bool> {
    let blind = |cause: &dyn std::fmt::Display| unknown(DESTROY, id.as_str(), cause);
    for _ in 0..ATTEMPTS {
        let Some(folder) = Folder::open(home, id).map_err(|cause| blind(&cause))? else { return Ok(false) };
        let answer = tokio::select! {
            // The other branch has an end.
            answer = ask(&folder, Op::Destroy, DESTRUCTION * 2, DESTROY) => Some(answer?),
            () = inaction(home, &folder) => None,
        };
        match answer {
            Some(Answer::Reply(reply, mut stream)) if matches!(*reply, Reply::Destroyed) => {
                // The connection ends with the shim's process.
                let mut rest = Vec::new();
                let _ = tokio::time::timeout(PROCESS_END, stream.read_to_end(&mut rest)).await;
                return Ok(true);
            }
            Some(Answer::Reply(..)) => return Err(misplaced(DESTROY)),
            // Somebody may be at it who does not serve yet, or not any more.
            Some(Answer::Nobody) if changes(home, &folder).await.map_err(|cause| blind(&cause))? => continue,
            Some(Answer::Nobody) | None => {}
        }
        // Nobody guards it, or somebody who does not act on it any more.
        if let Some(done) = destroy_instead(home.path(), id).await? {
            return Ok(done);
        }
    }
    Err(blind(&"its shim comes and goes"))
}

/// Ends when the shim had time enough to begin and did not (neither does the record say so, nor is the folder gone), or to come to an end.
async fn inaction(home: &Home, folder: &Folder) {
    let overdue = folder.record().is_ok_and(|record| record.is_some_and(|record| is_overdue(&record)));
    tokio::time::sleep(if overdue { LAST_CHANCE } else { BEGINNING }).await;
    let begun = !folder.is_in_place(home).unwrap_or(true)
        || folder.record().is_ok_and(|record| record.is_some_and(|record| record.state == State::Destroying));
    if begun && !overdue {
        tokio::time::sleep(DESTRUCTION).await;
    }
}

/// Whether whoever guards the folder without serving it came to serve it, or went away; `false` where nobody guards it, or goes on without that.
async fn changes(home: &Home, folder: &Folder) -> rustix::io::Result<bool> {
    if !folder.shim_lives()? {
        return Ok(false);
    }
    let changed = || Ok(!folder.shim_lives()? || !folder.is_in_place(home)? || serves(folder));
    until_async(CHANGE, changed).await
}

fn serves(folder: &Folder) -> bool {
    std::os::unix::net::UnixStream::connect(folder.socket(crate::shim::SHIM_SOCKET)).is_ok()
}

/// Acts in the place of a shim that is gone, or that has to go; `None` means that another one came.
async fn destroy_instead(home: &std::path::Path, id: &SandboxId) -> Result<Option<bool>> {
    let (home, id) = (home.to_owned(), id.clone());
    let work = tokio::task::spawn_blocking(move || {
        let blind = |cause: &dyn std::fmt::Display| unknown(DESTROY, id.as_str(), cause);
        let Some(home) = Home::open(&home)? else { return Ok(Some(false)) };
        let Some(folder) = Folder::open(&home, &id).map_err(|cause| blind(&cause))? else {
            return Ok(Some(false));
        };
        let Some(lock) = unseat(&folder).map_err(|cause| blind(&cause))? else { return Ok(None) };
        if !folder.is_in_place(&home).map_err(|cause| blind(&cause))? {
            return Ok(Some(false));
        }
        // A record that can't be read must not make a sandbox indestructible: what it would tell is looked for instead.
        let record = folder.record().unwrap_or_default();
        let existed = record.is_some() || folder.has_dir(sandbar_engine::LAYERS_FOLDER).unwrap_or(true);
        let agent = record.as_ref().and_then(|record| record.private.agent.as_ref());
        let ending = if agent.is_some_and(|agent| agent.lives().unwrap_or(false)) {
            Ending { cause: Some(EndCause::Destroyed), ..Ending::default() }
        } else {
            Ending::of_found(record.as_ref())
        };
        // Whatever ended it before, what is told here is what the caller does.
        let told = AuditedEnd::begin(record.as_ref(), Role::Caller, Some(EndCause::Destroyed));
        let ended = teardown::tear_down(&home, &folder, record, &lock, teardown::Groups::Unknown, ending);
        told.over(&ended, Left::Nothing, None);
        ended?;
        Ok(Some(existed))
    });
    work.await.map_err(|cause| unknown(DESTROY, "", cause))?
}
