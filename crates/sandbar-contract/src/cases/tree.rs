use std::collections::BTreeSet;

use sandbar_core::{EntryKind, ErrorKind, FileEntry, FilesExt, GuestPath, ListOptions, Sandbox};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, fail, sh};
use crate::harness::Fault;

group!("tree";
    stat_of_a_file, stat_of_a_folder, stat_of_the_root, stat_of_missing_is_none, stat_below_missing_is_none,
    stat_follows_a_link, stat_of_a_dangling_link, stat_shows_the_mode, stat_shows_a_recent_time,
    failed_stat_is_an_error, link_circle_is_no_hang, list_names_all, list_of_an_empty_folder_is_empty,
    list_of_missing_is_not_found, list_of_a_file_is_invalid, list_of_depth_zero_is_invalid,
    list_has_no_dot_entries, list_goes_one_level_down, list_goes_as_deep_as_asked, list_tells_links,
    list_of_a_linked_folder, list_survives_a_link_to_above, list_of_many_is_complete, odd_names_are_kept,
    name_with_newline_is_one_entry, non_utf8_name_is_kept_or_refused, long_name_is_kept, make_dir_says_true_then_false,
    make_dir_makes_those_above, make_dir_over_a_file_is_invalid, rename_moves_a_file, rename_moves_a_folder,
    rename_replaces_a_file, rename_makes_the_folders_above, rename_of_missing_is_not_found,
    rename_answers_the_entry, remove_says_true_then_false, remove_takes_all_below, remove_of_missing_is_false,
    remove_does_not_follow_links, remove_of_a_link_to_a_folder_keeps_it,
);

async fn make(sandbox: &dyn Sandbox, folder: &GuestPath, names: &[&str]) -> Checked {
    for name in names {
        sandbox.files().write(&folder.join(name)?, "x".into()).await?;
    }
    Ok(())
}

async fn stat(sandbox: &dyn Sandbox, path: &GuestPath) -> Checked<FileEntry> {
    match sandbox.files().stat(path).await? {
        Some(entry) => Ok(entry),
        None => fail(format!("`{path}` exists and is said to be absent")),
    }
}

/// The last segments of what a folder holds.
async fn names(sandbox: &dyn Sandbox, folder: &GuestPath) -> Checked<BTreeSet<String>> {
    let entries = sandbox.files().list(folder).await?;
    let name =
        |entry: &FileEntry| String::from_utf8_lossy(entry.path.file_name().unwrap_or_default()).into_owned();
    let found: BTreeSet<String> = entries.iter().map(name).collect();
    ensure_eq!(found.len(), entries.len(), "different names in the listing");
    Ok(found)
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

async fn stat_of_a_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    sandbox.files().write(&path, "12345".into()).await?;
    let entry = stat(&*sandbox, &path).await?;
    ensure_eq!(entry.kind, EntryKind::File, "kind");
    ensure_eq!(entry.size, 5, "size");
    ensure_eq!(entry.path, path, "path");
    ensure_eq!(entry.link_target, None, "link target");
    Ok(())
}

async fn stat_of_a_folder(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    ensure_eq!(stat(&*sandbox, &folder).await?.kind, EntryKind::Directory, "kind");
    Ok(())
}

async fn stat_of_the_root(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    ensure_eq!(stat(&*sandbox, &at("/")?).await?.kind, EntryKind::Directory, "kind of `/`");
    Ok(())
}

async fn stat_of_missing_is_none(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let found = sandbox.files().stat(&folder.join("none")?).await?;
    ensure!(found.is_none(), "found {found:?}");
    Ok(())
}

async fn stat_below_missing_is_none(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    for path in ["no/such/folder", "file/below"] {
        let found = sandbox.files().stat(&folder.join(path)?).await?;
        ensure!(found.is_none(), "found {found:?}");
    }
    Ok(())
}

async fn stat_follows_a_link(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("cd {folder} && printf 1234567 > real && ln -s real link && ln -s . here"))
        .await?;
    let entry = stat(&*sandbox, &folder.join("link")?).await?;
    ensure_eq!(entry.kind, EntryKind::File, "kind of what it leads to");
    ensure_eq!(entry.size, 7, "size of what it leads to");
    ensure_eq!(entry.link_target.as_deref(), Some(folder.join("real")?.as_bytes()), "where it leads");
    let entry = stat(&*sandbox, &folder.join("here")?).await?;
    ensure_eq!(entry.kind, EntryKind::Directory, "kind of a linked folder");
    Ok(())
}

async fn stat_of_a_dangling_link(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("ln -s /no/such/target {folder}/link")).await?;
    let entry = stat(&*sandbox, &folder.join("link")?).await?;
    ensure_eq!(entry.kind, EntryKind::Other, "kind");
    ensure_eq!(entry.link_target.as_deref(), Some(folder.join("link")?.as_bytes()), "where it leads");
    Ok(())
}

async fn stat_shows_the_mode(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    for mode in [0o640, 0o755] {
        sh(&*sandbox, &format!("chmod {mode:o} {folder}/file")).await?;
        let found = stat(&*sandbox, &folder.join("file")?).await?.mode & 0o7777;
        ensure_eq!(format!("{found:o}"), format!("{mode:o}"), "mode");
    }
    Ok(())
}

async fn stat_shows_a_recent_time(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    let Some(modified) = stat(&*sandbox, &folder.join("file")?).await?.modified else {
        return fail("a file that was just written has no time");
    };
    let off = (jiff::Timestamp::now().as_second() - modified.as_second()).abs();
    ensure!(off < 120, "a file that was just written is {off} s off");
    Ok(())
}

async fn failed_stat_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Stat)?;
    match sandbox.files().stat(&at("/tmp")?).await {
        Ok(found) => fail(format!("a stat that failed answered {found:?}")),
        Err(error) => {
            ensure!(error.kind() != ErrorKind::NotFound, "a stat that failed is `NotFound`: {error}");
            Ok(())
        }
    }
}

async fn link_circle_is_no_hang(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("ln -s b {folder}/a && ln -s a {folder}/b")).await?;
    let read = sandbox.files().read(&folder.join("a")?).await;
    ensure!(read.is_err(), "a link that leads to itself was read");
    ensure_eq!(stat(&*sandbox, &folder.join("a")?).await?.kind, EntryKind::Other, "kind");
    ensure_eq!(names(&*sandbox, &folder).await?, set(["a", "b"]), "names");
    Ok(())
}

async fn list_names_all(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["one", "two", ".hidden"]).await?;
    sandbox.files().make_dir(&folder.join("folder")?).await?;
    ensure_eq!(names(&*sandbox, &folder).await?, set(["one", "two", ".hidden", "folder"]), "names");
    Ok(())
}

async fn list_of_an_empty_folder_is_empty(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    ensure_eq!(names(&*sandbox, &folder).await?, set([]), "names in an empty folder");
    Ok(())
}

async fn list_of_missing_is_not_found(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let listed = sandbox.files().list(&folder.join("none")?).await;
    expect_error(listed, &[ErrorKind::NotFound], "a listing of a missing folder").map(drop)
}

async fn list_of_a_file_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    let listed = sandbox.files().list(&folder.join("file")?).await;
    expect_error(listed, &[ErrorKind::InvalidInput], "a listing of a file").map(drop)
}

async fn list_of_depth_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let listed = sandbox.files().list_opts(&folder, ListOptions { depth: 0 }).await;
    expect_error(listed, &[ErrorKind::InvalidInput], "a listing of depth 0").map(drop)
}

async fn list_has_no_dot_entries(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let names = names(&*sandbox, &at("/")?).await?;
    ensure!(!names.contains(".") && !names.contains(".."), "`.` or `..` is listed");
    ensure!(names.contains("tmp"), "`/tmp` is not listed");
    Ok(())
}

async fn paths(sandbox: &dyn Sandbox, folder: &GuestPath, depth: u32) -> Checked<BTreeSet<String>> {
    let entries = sandbox.files().list_opts(folder, ListOptions { depth }).await?;
    Ok(entries.iter().map(|entry| entry.path.to_string().replace(&format!("{folder}/"), "")).collect())
}

async fn list_goes_one_level_down(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["a/b/c", "d"]).await?;
    ensure_eq!(paths(&*sandbox, &folder, 1).await?, set(["a", "d"]), "paths at depth 1");
    Ok(())
}

async fn list_goes_as_deep_as_asked(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["a/b/c", "d"]).await?;
    ensure_eq!(paths(&*sandbox, &folder, 2).await?, set(["a", "a/b", "d"]), "paths at depth 2");
    ensure_eq!(paths(&*sandbox, &folder, 9).await?, set(["a", "a/b", "a/b/c", "d"]), "paths at depth 9");
    Ok(())
}

async fn list_tells_links(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("cd {folder} && echo x > real && ln -s real 'a -> b'")).await?;
    let entries = sandbox.files().list(&folder).await?;
    let link = entries.iter().find(|entry| entry.path.file_name() == Some(b"a -> b"));
    let target = link.and_then(|link| link.link_target.as_deref());
    ensure_eq!(target, Some(folder.join("real")?.as_bytes()), "where the link leads");
    let real = entries.iter().find(|entry| entry.path.file_name() == Some(b"real"));
    ensure_eq!(real.map(|real| real.link_target.is_none()), Some(true), "a file has no link target");
    Ok(())
}

async fn list_of_a_linked_folder(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["real/inside"]).await?;
    sh(&*sandbox, &format!("ln -s real {folder}/link")).await?;
    ensure_eq!(names(&*sandbox, &folder.join("link")?).await?, set(["inside"]), "names behind the link");
    Ok(())
}

async fn list_survives_a_link_to_above(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("mkdir {folder}/a && ln -s .. {folder}/a/up")).await?;
    ensure_eq!(paths(&*sandbox, &folder, 50).await?, set(["a", "a/up"]), "paths");
    Ok(())
}

async fn list_of_many_is_complete(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("cd {folder} && seq 3000 | while read n; do : > file-$n; done")).await?;
    ensure_eq!(names(&*sandbox, &folder).await?.len(), 3000, "names");
    Ok(())
}

/// Names that a listing parsed from text would get wrong.
const ODD: &[&str] = &[
    "two  spaces",
    " leading",
    "trailing ",
    "quote'single",
    "quote\"double",
    "semi;colon",
    "dollar$HOME",
    "star*",
    "-dash",
    "back\\slash",
    "tab\there",
    "ünïcødé",
    "漢字🦀",
    "per%20cent",
    "plus+and&",
    "question?mark#hash",
    "a -> b",
];

async fn odd_names_are_kept(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    for name in ODD {
        sandbox.files().write(&folder.join(name)?, (*name).into()).await?;
    }
    ensure_eq!(names(&*sandbox, &folder).await?, set(ODD.iter().copied()), "names");
    for name in ODD {
        ensure_eq!(sandbox.files().read(&folder.join(name)?).await?, *name, "content");
    }
    Ok(())
}

async fn name_with_newline_is_one_entry(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["line\nbreak"]).await?;
    ensure_eq!(names(&*sandbox, &folder).await?, set(["line\nbreak"]), "names");
    ensure!(sandbox.files().remove(&folder.join("line\nbreak")?).await?, "it could not be removed");
    Ok(())
}

async fn non_utf8_name_is_kept_or_refused(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join(b"not\xfftext")?;
    match sandbox.files().write(&path, "x".into()).await {
        Ok(_) => {
            let entries = sandbox.files().list(&folder).await?;
            ensure!(
                entries.iter().any(|entry| entry.path == path),
                "the name came back changed: {entries:?}"
            );
        }
        Err(error) => {
            let kinds = [ErrorKind::InvalidInput, ErrorKind::Unsupported];
            ensure!(kinds.contains(&error.kind()), "refused as {:?}: {error}", error.kind());
            ensure!(sandbox.files().list(&folder).await?.is_empty(), "the refused write left something");
        }
    }
    Ok(())
}

async fn long_name_is_kept(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let long = "n".repeat(255);
    make(&*sandbox, &folder, &[&long]).await?;
    ensure_eq!(names(&*sandbox, &folder).await?, set([long.as_str()]), "names");
    Ok(())
}

async fn make_dir_says_true_then_false(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("new")?;
    ensure!(sandbox.files().make_dir(&path).await?, "a new folder was said to be there already");
    ensure!(!sandbox.files().make_dir(&path).await?, "an existing folder was said to be new");
    Ok(())
}

async fn make_dir_makes_those_above(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("a/b/c")?;
    ensure!(sandbox.files().make_dir(&path).await?, "a new folder was said to be there already");
    ensure_eq!(stat(&*sandbox, &path).await?.kind, EntryKind::Directory, "kind");
    Ok(())
}

async fn make_dir_over_a_file_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    let path = folder.join("file")?;
    expect_error(sandbox.files().make_dir(&path).await, &[ErrorKind::InvalidInput], "a folder over a file")?;
    ensure_eq!(sandbox.files().read(&path).await?, "x", "the file");
    Ok(())
}

async fn rename_moves_a_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["from"]).await?;
    sandbox.files().rename(&folder.join("from")?, &folder.join("to")?).await?;
    ensure_eq!(names(&*sandbox, &folder).await?, set(["to"]), "names");
    ensure_eq!(sandbox.files().read(&folder.join("to")?).await?, "x", "content");
    Ok(())
}

async fn rename_moves_a_folder(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["from/a/b"]).await?;
    sandbox.files().rename(&folder.join("from")?, &folder.join("to")?).await?;
    ensure_eq!(paths(&*sandbox, &folder, 9).await?, set(["to", "to/a", "to/a/b"]), "paths");
    Ok(())
}

async fn rename_replaces_a_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["from"]).await?;
    sandbox.files().write(&folder.join("to")?, "old".into()).await?;
    sandbox.files().rename(&folder.join("from")?, &folder.join("to")?).await?;
    ensure_eq!(sandbox.files().read(&folder.join("to")?).await?, "x", "content");
    Ok(())
}

async fn rename_makes_the_folders_above(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["from"]).await?;
    let to = folder.join("new/folder/to")?;
    sandbox.files().rename(&folder.join("from")?, &to).await?;
    ensure_eq!(sandbox.files().read(&to).await?, "x", "content");
    Ok(())
}

async fn rename_of_missing_is_not_found(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let renamed = sandbox.files().rename(&folder.join("none")?, &folder.join("new/to")?).await;
    expect_error(renamed, &[ErrorKind::NotFound], "a rename of nothing").map(drop)
}

async fn rename_answers_the_entry(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["from"]).await?;
    let to = folder.join("to")?;
    let entry = sandbox.files().rename(&folder.join("from")?, &to).await?;
    ensure_eq!((entry.path, entry.kind, entry.size), (to, EntryKind::File, 1), "the entry");
    Ok(())
}

async fn remove_says_true_then_false(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["file"]).await?;
    let path = folder.join("file")?;
    ensure!(sandbox.files().remove(&path).await?, "a file was said to be absent");
    ensure!(!sandbox.files().remove(&path).await?, "a removed file was said to be there");
    Ok(())
}

async fn remove_takes_all_below(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["top/a/b/c", "top/d"]).await?;
    ensure!(sandbox.files().remove(&folder.join("top")?).await?, "a folder was said to be absent");
    ensure_eq!(names(&*sandbox, &folder).await?, set([]), "names left");
    Ok(())
}

async fn remove_of_missing_is_false(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    for path in ["none", "no/such/folder/file"] {
        ensure!(!sandbox.files().remove(&folder.join(path)?).await?, "`{path}` was said to be there");
    }
    Ok(())
}

async fn remove_does_not_follow_links(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["real"]).await?;
    sh(&*sandbox, &format!("ln -s real {folder}/link")).await?;
    ensure!(sandbox.files().remove(&folder.join("link")?).await?, "the link was said to be absent");
    ensure_eq!(names(&*sandbox, &folder).await?, set(["real"]), "names left");
    Ok(())
}

async fn remove_of_a_link_to_a_folder_keeps_it(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    make(&*sandbox, &folder, &["real/inside", "top/other"]).await?;
    sh(&*sandbox, &format!("ln -s ../real {folder}/top/link && ln -s real {folder}/link")).await?;
    sandbox.files().remove(&folder.join("link")?).await?;
    sandbox.files().remove(&folder.join("top")?).await?;
    ensure_eq!(names(&*sandbox, &folder.join("real")?).await?, set(["inside"]), "what the links led to");
    Ok(())
}
