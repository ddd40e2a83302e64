use futures::StreamExt;
use sandbar_core::{
    ErrorKind, FileChangeKind, FilesExt, GuestPath, Sandbox, SandboxExt, WatchEvents, WatchOptions,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, ensure, ensure_eq, expect_error, fail, part, sh};

group!("watching";
    sees_what_appears, sees_what_is_written, sees_what_goes_away, sees_what_is_renamed,
    sees_what_commands_do, is_armed_when_it_answers, sees_only_the_folder_itself, sees_all_below_if_asked,
    sees_below_new_folders, of_missing_is_not_found, of_a_file_is_invalid, two_watches_see_the_same,
    a_rename_within_tells_both_names, a_rename_elsewhere_tells_one, ends_with_the_folder,
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

async fn renamed(events: &mut WatchEvents, path: &GuestPath) -> Checked<Option<GuestPath>> {
    let read = async {
        while let Some(change) = events.next().await {
            let change = change?;
            if change.kind == FileChangeKind::Rename && change.path == *path {
                return Checked::Ok(change.to);
            }
        }
        fail("the watch ended before the rename")
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(told) => told,
        Err(_) => fail(format!("no rename of `{path}` within {PATIENCE:?}")),
    }
}

async fn a_rename_within_tells_both_names(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    sandbox.files().make_dir(&folder.join("a/b")?).await?;
    let (from, to) = (folder.join("a/from")?, folder.join("a/b/to")?);
    sandbox.files().write(&from, "x".into()).await?;
    let mut events = watch(&*sandbox, &folder, WatchOptions::Recursive).await?;
    sandbox.files().rename(&from, &to).await?;
    let told = renamed(&mut events, &from).await?;
    ensure_eq!(told, Some(to), "the new name");
    Ok(())
}

async fn a_rename_elsewhere_tells_one(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    sandbox.files().make_dir(&folder.join("seen")?).await?;
    let (from, to) = (folder.join("seen/from")?, folder.join("unseen")?);
    sandbox.files().write(&from, "x".into()).await?;
    let mut events = watch(&*sandbox, &folder.join("seen")?, WatchOptions::Folder).await?;
    sandbox.files().rename(&from, &to).await?;
    let told = renamed(&mut events, &from).await?;
    ensure_eq!(told, None, "a new name that is not watched");
    Ok(())
}

async fn ends_with_the_folder(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = watched(bed).await?;
    let (gone, moved) = (folder.join("gone")?, folder.join("moved")?);
    for path in [&gone, &moved] {
        sandbox.files().make_dir(path).await?;
    }
    let ends = [
        watch(&*sandbox, &gone, WatchOptions::Folder).await?,
        watch(&*sandbox, &moved, WatchOptions::Recursive).await?,
    ];
    sandbox.files().remove(&gone).await?;
    sandbox.files().rename(&moved, &folder.join("elsewhere")?).await?;
    for mut events in ends {
        let read = async {
            while let Some(change) = events.next().await {
                change?;
            }
            Checked::Ok(())
        };
        match tokio::time::timeout(PATIENCE, read).await {
            Ok(ended) => ended?,
            Err(_) => return fail("a watch of a folder that is gone goes on"),
        }
    }
    Ok(())
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
