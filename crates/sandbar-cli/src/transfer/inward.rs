use std::io;
use std::path::Path;

use sandbar::{Error, Sandbox};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::failure::Result;
use crate::transfer::copy_error;
use crate::transfer::guest_program::GuestProgram;
use crate::transfer::host_tree::HostTree;
use crate::transfer::landing::{Destination, Landing, ROOT};
use crate::transfer::meter::Meter;
use crate::transfer::stop::{Stop, unless_stopped};
use crate::value::CopyIn;

/// Pieces of a tree that are read ahead: enough that neither side waits for the other where both are about as fast.
const QUEUE: usize = 4;

/// Copies a file or tree of this machine into the sandbox, all or nothing. It belongs to the sandbox's default user.
pub(crate) async fn copy_in(
    sandbox: &dyn Sandbox,
    copy: &CopyIn,
    meter: &Meter,
    stop: Stop<'_>,
) -> Result<()> {
    let what = format!("`{}`", copy.source.display());
    let tree = HostTree::open(&copy.source, ROOT, meter).map_err(|error| copy_error(&what, error))?;
    let destination = Destination {
        source: what.clone(),
        name: own_name(&copy.source)?,
        top: tree.top().map_err(|error| copy_error(&what, error))?,
        target: &copy.target,
        placement: copy.placement,
        existing: copy.existing,
        parents: copy.parents,
    };
    let landing = Landing::start(sandbox, destination).await?;
    let mut tar = match landing.tar().await {
        Ok(tar) => tar,
        Err(error) => return Err(landing.abort(error, Error::with_left_behind).await.into()),
    };
    match unless_stopped(stop, stream(&mut tar, tree, &what)).await {
        Ok(()) => Ok(landing.commit().await?),
        Err(failure) => {
            tar.kill().await;
            Err(landing.abort(failure, crate::failure::Failure::with_left_behind).await)
        }
    }
}

/// The last segment of a path, also of `.` and of one that ends with `..`.
fn own_name(source: &Path) -> Result<Vec<u8>, Error> {
    let complain = |why: String| copy_error(&format!("`{}`", source.display()), why);
    if let Some(name) = source.file_name() {
        return Ok(name.as_encoded_bytes().to_owned());
    }
    let real = source.canonicalize().map_err(|error| complain(error.to_string()))?;
    let name = real.file_name().ok_or_else(|| complain("it has no name of its own".into()))?;
    Ok(name.as_encoded_bytes().to_owned())
}

/// Feeds the tree to `tar`. It is read on a thread of its own, so that one piece is read while the one before it is unpacked.
async fn stream(tar: &mut GuestProgram, mut tree: HostTree, what: &str) -> Result<(), Error> {
    let (pieces, mut queue) = mpsc::channel(QUEUE);
    let reading = spawn_blocking(move || -> io::Result<()> {
        while let Some(piece) = tree.next()? {
            if pieces.blocking_send(piece).is_err() {
                // The copy was given up.
                break;
            }
        }
        Ok(())
    });
    while let Some(piece) = queue.recv().await {
        if let Err(error) = tar.write(piece).await {
            // Its own words, where it has some, say more than a broken pipe.
            tar.kill().await;
            return Err(tar.end(what).await.err().unwrap_or(error));
        }
    }
    let read = reading.await.unwrap_or_else(|_| Err(io::Error::other("the thread that read it is gone")));
    read.map_err(|error| copy_error(what, error))?;
    tar.close().await?;
    tar.end(what).await
}
