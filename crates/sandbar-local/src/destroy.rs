//! Destroying a sandbox, with its shim or without.

use std::time::Duration;

use sandbar_core::{Result, SandboxId};
use tokio::io::AsyncReadExt;

use crate::ask::{Answer, DESTRUCTION, ask, misplaced};
use crate::error::unknown;
use crate::home::{Folder, Home, Lock};
use crate::shim::protocol::{Op, Reply};
use crate::teardown;
use crate::wait::until_async;

const DESTROY: &str = "destroy";
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
        match ask(&folder, Op::Destroy, DESTRUCTION, DESTROY).await? {
            Answer::Reply(reply, mut stream) if matches!(*reply, Reply::Destroyed) => {
                // The connection ends with the shim's process.
                let mut rest = Vec::new();
                let _ = tokio::time::timeout(PROCESS_END, stream.read_to_end(&mut rest)).await;
                return Ok(true);
            }
            Answer::Reply(..) => return Err(misplaced(DESTROY)),
            Answer::Nobody => {}
        }
        if folder.shim_lives().map_err(|cause| blind(&cause))? {
            // Somebody is at it who does not serve yet, or not any more.
            let done = until_async(CHANGE, || {
                Ok::<_, rustix::io::Errno>(
                    !folder.shim_lives()? || !folder.is_in_place(home)? || serves(&folder),
                )
            });
            if !done.await.map_err(|cause| blind(&cause))? {
                return Err(blind(&"its shim neither answers nor lets go"));
            }
            continue;
        }
        if let Some(done) = destroy_unguarded(home.path(), id).await? {
            return Ok(done);
        }
    }
    Err(blind(&"its shim comes and goes"))
}

fn serves(folder: &Folder) -> bool {
    std::os::unix::net::UnixStream::connect(folder.socket(crate::shim::SHIM_SOCKET)).is_ok()
}

/// Acts in the place of a shim that is gone; `None` means that another one came.
async fn destroy_unguarded(home: &std::path::Path, id: &SandboxId) -> Result<Option<bool>> {
    let (home, id) = (home.to_owned(), id.clone());
    let work = tokio::task::spawn_blocking(move || {
        let blind = |cause: &dyn std::fmt::Display| unknown(DESTROY, id.as_str(), cause);
        let Some(home) = Home::open(&home)? else { return Ok(Some(false)) };
        let Some(folder) = Folder::open(&home, &id).map_err(|cause| blind(&cause))? else {
            return Ok(Some(false));
        };
        let Some(lock) = Lock::take(&folder).map_err(|cause| blind(&cause))? else { return Ok(None) };
        if !folder.is_in_place(&home).map_err(|cause| blind(&cause))? {
            return Ok(Some(false));
        }
        // A record that can't be read must not make a sandbox indestructible: what it would tell is looked for instead.
        let record = folder.record().unwrap_or_default();
        let existed = record.is_some() || folder.has_dir(sandbar_engine::LAYERS_FOLDER).unwrap_or(true);
        teardown::tear_down(&home, &folder, record, &lock)?;
        Ok(Some(existed))
    });
    work.await.map_err(|cause| unknown(DESTROY, "", cause))?
}
