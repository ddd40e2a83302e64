use futures::StreamExt;
use sandbar_core::{
    ErrorKind, FileChangeKind, FilesExt, GuestPath, Sandbox, SandboxExt, WatchEvents, WatchOptions,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, ensure, expect_error, fail, part, sh};

group!("watching";
    sees_what_appears, sees_what_is_written, sees_what_goes_away, sees_what_is_renamed,
    sees_what_commands_do, is_armed_when_it_answers, sees_only_the_folder_itself, sees_all_below_if_asked,
    sees_below_new_folders, of_missing_is_not_found, of_a_file_is_invalid, two_watches_see_the_same,
);

async fn watched(bed: &Bed<'_>) -> Checked<(std::sync::Arc<dyn Sandbox>, GuestPath)> {
    let (sandbox, folder) = bed.place().await?;
    part(sandbox.watching(), &*sandbox, "watching")?;
    Ok((sandbox, folder))
}

async fn watch(sandbox: &dyn Sandbox, folder: &GuestPath, options: WatchOptions) -> Checked<WatchEvents> {
    Ok(sandbox.require_watching()?.watch(folder, options).await?)
}

/// Reads events until one of `kinds` happened to `path`; answers all paths seen before.
async fn wait_for(
    events: &mut WatchEvents,
    kinds: &[FileChangeKind],
    path: &GuestPath,
) -> Checked<Vec<GuestPath>> {
    let mut seen = Vec::new();
    let read = async {
        while let Some(change) = events.next().await {
            let change = change?;
            if change.path == *path && kinds.contains(&change.kind) {
                return Checked::Ok(true);
            }
            seen.push(change.path);
        }
        Checked::Ok(false)
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(true)) => Ok(seen),
        Ok(Ok(false)) => fail(format!("the watch ended before {kinds:?} of `{path}`")),
        Ok(Err(verdict)) => Err(verdict),
        Err(_) => fail(format!("no {kinds:?} of `{path}` within {PATIENCE:?}, but {seen:?}")),
    }
}

async fn sees_what_appears(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    let path = folder.join("new")?;
    sandbox.files().write(&path, "x".into()).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &path).await.map(drop)
}

async fn sees_what_is_written(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    sh(&*sandbox, &format!("echo one > {folder}/file")).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    sh(&*sandbox, &format!("echo two >> {folder}/file")).await?;
    wait_for(&mut events, &[FileChangeKind::Write], &folder.join("file")?).await.map(drop)
}

async fn sees_what_goes_away(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let path = folder.join("file")?;
    sandbox.files().write(&path, "x".into()).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    sandbox.files().remove(&path).await?;
    wait_for(&mut events, &[FileChangeKind::Remove], &path).await.map(drop)
}

async fn sees_what_is_renamed(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let (from, to) = (folder.join("from")?, folder.join("to")?);
    sandbox.files().write(&from, "x".into()).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    sandbox.files().rename(&from, &to).await?;
    wait_for(&mut events, &[FileChangeKind::Rename], &from).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &to).await.map(drop)
}

async fn sees_what_commands_do(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    sh(&*sandbox, &format!("mkdir {folder}/made; echo x > {folder}/file; rm {folder}/file")).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &folder.join("made")?).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &folder.join("file")?).await?;
    wait_for(&mut events, &[FileChangeKind::Remove], &folder.join("file")?).await.map(drop)
}

async fn is_armed_when_it_answers(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    for number in 0..10 {
        let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
        let path = folder.join(format!("at-once-{number}"))?;
        sandbox.files().write(&path, "x".into()).await?;
        wait_for(&mut events, &[FileChangeKind::Create], &path).await?;
    }
    Ok(())
}

async fn sees_only_the_folder_itself(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    sandbox.files().make_dir(&folder.join("below")?).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    let (deep, last) = (folder.join("below/file")?, folder.join("last")?);
    sandbox.files().write(&deep, "x".into()).await?;
    sandbox.files().write(&last, "x".into()).await?;
    let seen = wait_for(&mut events, &[FileChangeKind::Create], &last).await?;
    ensure!(!seen.contains(&deep), "a change below the folder was seen");
    Ok(())
}

async fn sees_all_below_if_asked(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    sandbox.files().make_dir(&folder.join("a/b")?).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Recursive).await?;
    let path = folder.join("a/b/file")?;
    sandbox.files().write(&path, "x".into()).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &path).await.map(drop)
}

async fn sees_below_new_folders(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Recursive).await?;
    sandbox.files().make_dir(&folder.join("new")?).await?;
    wait_for(&mut events, &[FileChangeKind::Create], &folder.join("new")?).await?;
    let path = folder.join("new/file")?;
    sandbox.files().write(&path, "x".into()).await?;
    wait_for(&mut events, &[FileChangeKind::Create, FileChangeKind::Write], &path).await.map(drop)
}

async fn of_missing_is_not_found(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let events = sandbox.require_watching()?.watch(&folder.join("none")?, WatchOptions::Folder).await;
    expect_error(events, &[ErrorKind::NotFound], "a watch on nothing").map(drop)
}

async fn of_a_file_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let path = folder.join("file")?;
    sandbox.files().write(&path, "x".into()).await?;
    let events = sandbox.require_watching()?.watch(&path, WatchOptions::Folder).await;
    expect_error(events, &[ErrorKind::InvalidInput], "a watch on a file").map(drop)
}

async fn two_watches_see_the_same(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let mut one = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    let mut other = watch(&*sandbox, &folder, WatchOptions::Folder).await?;
    let path = folder.join("new")?;
    sandbox.files().write(&path, "x".into()).await?;
    wait_for(&mut one, &[FileChangeKind::Create], &path).await?;
    wait_for(&mut other, &[FileChangeKind::Create], &path).await.map(drop)
}
