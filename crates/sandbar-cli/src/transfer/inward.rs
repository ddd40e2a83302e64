use std::path::Path;

use sandbar::{EntryKind, Error, ErrorKind, FileEntry, GuestPath, Sandbox, StdinMode};

use crate::transfer::guest_program::{GuestProgram, ProgramOptions, bounded};
use crate::transfer::host_tree::{HostTree, Top};
use crate::transfer::refusal::refusal;
use crate::transfer::{copy_error, temporary_name};
use crate::value::{CopyIn, Placement};

/// The copy's name in its temporary folder.
const ROOT: &str = "copy";

/// Copies a file or tree of this machine into the sandbox, all or nothing. It belongs to the sandbox's default user.
pub(crate) async fn copy_in(sandbox: &dyn Sandbox, copy: &CopyIn) -> Result<(), Error> {
    let what = format!("`{}`", copy.source.display());
    let mut tree = HostTree::open(&copy.source, ROOT).map_err(|error| copy_error(&what, error))?;
    let top = tree.top().map_err(|error| copy_error(&what, error))?;
    let target = destination(sandbox, copy, top).await?;
    let parent = target.parent().ok_or_else(|| copy_error(&what, "a copy can't replace `/`"))?;
    let temporary = parent.join(temporary_name("copy")?)?;
    // What these complain of is a name of ours; a sandbox that is gone speaks for itself.
    let in_words = |error: Error| if is_lost(&error) { error } else { refusal(copy, &parent, &error) };
    bounded(sandbox.files().make_dir(&temporary)).await?.map_err(in_words)?;
    let copied = async {
        let tar = start(sandbox, &temporary).await.map_err(|error| match error.kind() {
            // The folder is one that the user can't enter.
            ErrorKind::InvalidInput => in_words(error),
            _ => error,
        })?;
        stream(tar, &mut tree, &what).await?;
        bounded(sandbox.files().rename(&temporary.join(ROOT)?, &target)).await?.map_err(in_words)?;
        Ok(())
    }
    .await;
    // Also after success: the folder that held the copy. If it can't be removed after a failure, the failure says more.
    let removed = bounded(sandbox.files().remove(&temporary)).await.and_then(|removed| removed);
    copied.and_then(|()| removed.map(drop))
}

/// Where the copy's top goes.
async fn destination(sandbox: &dyn Sandbox, copy: &CopyIn, top: Top) -> Result<GuestPath, Error> {
    let found = bounded(sandbox.files().stat(&copy.target)).await??;
    let is_folder = found.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory);
    if !is_folder && copy.placement == Placement::IntoOrAs {
        check_replaceable(&copy.target, found.as_ref(), top)?;
        return Ok(copy.target.clone());
    }
    let target = copy.target.join(own_name(&copy.source)?)?;
    let found = bounded(sandbox.files().stat(&target)).await??;
    check_replaceable(&target, found.as_ref(), top)?;
    Ok(target)
}

/// Only a file or link gives way, and only to a file.
fn check_replaceable(target: &GuestPath, found: Option<&FileEntry>, top: Top) -> Result<(), Error> {
    let Some(found) = found else { return Ok(()) };
    let why = match (top, found.kind) {
        (_, EntryKind::Directory) => "it exists, and folders are neither merged nor replaced",
        (Top::Folder, _) => "it exists and is no folder",
        (Top::File, EntryKind::Other) if found.link_target.is_none() => "it exists and is no file",
        (Top::File, _) => return Ok(()),
    };
    Err(Error::new(ErrorKind::AlreadyExists, "copy", format!("nothing can be copied to `{target}`: {why}"))
        .with_hint("name a destination that does not exist"))
}

fn is_lost(error: &Error) -> bool {
    error.resource().is_some_and(|resource| resource.starts_with("sandbox "))
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

async fn start(sandbox: &dyn Sandbox, folder: &GuestPath) -> Result<GuestProgram, Error> {
    let options = ProgramOptions {
        name: "tar",
        // `-o`: the files belong to whoever unpacks them.
        arguments: ["-x", "-o", "-f", "-"].map(Into::into).into(),
        folder: folder.clone(),
        user: None,
        stdin: StdinMode::Open,
    };
    GuestProgram::start(sandbox, options).await
}

async fn stream(mut tar: GuestProgram, tree: &mut HostTree, what: &str) -> Result<(), Error> {
    loop {
        let chunk = match tree.next() {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => {
                tar.kill().await;
                return Err(copy_error(what, error));
            }
        };
        if let Err(error) = tar.write(chunk).await {
            // Its own words, where it has some, say more than a broken pipe.
            tar.kill().await;
            return Err(tar.end(what).await.err().unwrap_or(error));
        }
    }
    tar.close().await?;
    tar.end(what).await
}
