use std::sync::Arc;

use bytes::Bytes;
use futures::channel::oneshot;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{ErrorKind, FilesExt, GuestPath, Sandbox, SandboxExt};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, expect_error, fail, part, sh};

group!("archive";
    export_and_import_round_trip, export_is_rooted_at_the_last_segment, export_of_the_root_is_refused,
    export_of_missing_is_not_found, import_of_nothing_is_an_error, import_at_the_root_is_refused, import_drops_privilege_bits,
    import_makes_the_folder, import_merges_folders_and_replaces_files, import_of_gzip, import_into_a_file_is_an_error,
    import_refuses_to_climb, import_refuses_an_absolute_name, import_refuses_what_looks_like_an_option,
    import_refuses_a_link_out, import_refuses_an_absolute_link, import_refuses_a_hard_link_out, import_refuses_what_is_no_file,
    cut_import_leaves_nothing, cut_import_changes_nothing, import_that_is_given_up_leaves_nothing,
    broken_source_is_the_answer, broken_source_leaves_nothing, export_ends_with_the_end_marker, export_of_one_file,
    export_leaves_owners_out, sleeping_sandbox_is_a_conflict,
);

/// Bytes of a tar block.
const BLOCK: usize = 512;

/// One member of a tar, as POSIX' ustar format has it.
fn member(name: &str, kind: u8, mode: u32, link: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(157, link);
    put(257, "ustar");
    put(263, "00");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.extend_from_slice(content);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}

fn tar(members: &[Vec<u8>]) -> Bytes {
    [members.concat(), vec![0; 2 * BLOCK]].concat().into()
}

async fn place(bed: &Bed<'_>) -> Checked<(Arc<dyn Sandbox>, GuestPath)> {
    let (sandbox, folder) = bed.place().await?;
    part(sandbox.archive(), &*sandbox, "archive")?;
    Ok((sandbox, folder))
}

async fn import(sandbox: &dyn Sandbox, folder: &GuestPath, tar: Bytes) -> Checked<sandbar_core::Result<u64>> {
    let body = stream::once(async { Ok(tar) }).boxed();
    Ok(sandbox.require_archive()?.import(folder, body).await.map(|report| report.entries))
}

async fn export(sandbox: &dyn Sandbox, path: &GuestPath) -> Checked<Vec<u8>> {
    let chunks: Vec<Bytes> = sandbox.require_archive()?.export(path).await?.try_collect().await?;
    Ok(chunks.concat())
}

async fn export_and_import_round_trip(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let script = format!(
        "cd {folder} && mkdir -p tree/sub && printf a > tree/a && printf b > 'tree/sub/b c' && ln -s a tree/link"
    );
    sh(&*sandbox, &script).await?;
    let tar = export(&*sandbox, &folder.join("tree")?).await?;
    let copy = folder.join("copy")?;
    import(&*sandbox, &copy, tar.into()).await??;
    ensure_eq!(sandbox.files().read(&copy.join("tree/a")?).await?, "a", "a file");
    ensure_eq!(sandbox.files().read(&copy.join("tree/sub/b c")?).await?, "b", "a file further down");
    let link = sandbox.files().stat(&copy.join("tree/link")?).await?.and_then(|entry| entry.link_target);
    ensure_eq!(link.as_deref(), Some(copy.join("tree/a")?.as_bytes()), "a link");
    Ok(())
}

async fn export_is_rooted_at_the_last_segment(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("top/file")?, "x".into()).await?;
    let tar = export(&*sandbox, &folder.join("top")?).await?;
    ensure!(tar.starts_with(b"top"), "the first member is `{}`", tar[..20.min(tar.len())].escape_ascii());
    Ok(())
}

async fn export_of_the_root_is_refused(bed: &Bed<'_>) -> Checked {
    let (sandbox, _) = place(bed).await?;
    let exported = sandbox.require_archive()?.export(&at("/")?).await;
    expect_error(exported, &[ErrorKind::InvalidInput], "an export of `/`").map(drop)
}

async fn export_of_missing_is_not_found(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let exported = sandbox.require_archive()?.export(&folder.join("none")?).await;
    expect_error(exported, &[ErrorKind::NotFound], "an export of nothing").map(drop)
}

async fn import_at_the_root_is_refused(bed: &Bed<'_>) -> Checked {
    let (sandbox, _) = place(bed).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x")]);
    let imported = import(&*sandbox, &at("/")?, whole).await?;
    expect_error(imported, &[ErrorKind::InvalidInput], "an import at `/`").map(drop)
}

async fn import_of_nothing_is_an_error(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let imported = import(&*sandbox, &folder.join("new")?, Bytes::new()).await?;
    ensure!(imported.is_err(), "an empty stream was imported as a tar");
    Ok(())
}

async fn import_drops_privilege_bits(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    import(&*sandbox, &folder, tar(&[member("tool", b'0', 0o6755, "", b"x")])).await??;
    let Some(entry) = sandbox.files().stat(&folder.join("tool")?).await? else {
        return fail("the member was not unpacked");
    };
    ensure_eq!(entry.mode & 0o7000, 0, "privilege bits");
    ensure!(entry.owner != "root", "the owner in the tar was restored");
    Ok(())
}

async fn import_makes_the_folder(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let deep = folder.join("new/deep/er")?;
    let report = import(
        &*sandbox,
        &deep,
        tar(&[member("d/", b'5', 0o755, "", b""), member("d/f", b'0', 0o644, "", b"x")]),
    )
    .await??;
    ensure_eq!(report, 2, "members");
    ensure_eq!(sandbox.files().read(&deep.join("d/f")?).await?, "x", "a file");
    Ok(())
}

async fn import_merges_folders_and_replaces_files(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    for (name, content) in [("d/kept", "kept"), ("d/replaced", "before")] {
        sandbox.files().write(&folder.join(name)?, content.into()).await?;
    }
    let members = [member("d/replaced", b'0', 0o644, "", b"after"), member("d/new", b'0', 0o644, "", b"new")];
    import(&*sandbox, &folder, tar(&members)).await??;
    for (name, content) in [("d/kept", "kept"), ("d/replaced", "after"), ("d/new", "new")] {
        ensure_eq!(sandbox.files().read(&folder.join(name)?).await?, content, name);
    }
    ensure_eq!(sandbox.files().list(&folder).await?.len(), 1, "what is at the top");
    Ok(())
}

async fn import_of_gzip(bed: &Bed<'_>) -> Checked {
    /// A tar with a file `packed` that holds an `x`.
    const GZIP: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x2b\x48\x4c\xce\x4e\x4d\x61\xa0\x29\x30\x00\x02\x33\x13\x13\x30\x0d\x04\xe8\
        \x34\x10\x18\x22\xb1\x41\xe2\xe6\x86\x06\x66\x0c\x0a\x06\x0c\x74\x00\xa5\xc5\x25\x89\x45\x40\x2b\x19\x46\x26\xa8\x60\x18\x05\xa3\
        \x60\x14\x8c\x82\x51\x30\x12\x01\x00\x47\xf8\xd5\xd0\x00\x08\x00\x00";
    let (sandbox, folder) = place(bed).await?;
    import(&*sandbox, &folder, Bytes::from_static(GZIP)).await??;
    ensure_eq!(sandbox.files().read(&folder.join("packed")?).await?, "x", "the file");
    Ok(())
}

async fn import_into_a_file_is_an_error(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let file = folder.join("file")?;
    sandbox.files().write(&file, "before".into()).await?;
    let imported = import(&*sandbox, &file, tar(&[member("one", b'0', 0o644, "", b"x")])).await?;
    expect_error(imported, &[ErrorKind::InvalidInput], "an import into a file")?;
    ensure_eq!(sandbox.files().read(&file).await?, "before", "the file");
    Ok(())
}

async fn refused_import(bed: &Bed<'_>, members: &[Vec<u8>], outside: &str) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    refused_import_into(&*sandbox, &folder, members, outside).await
}

async fn refused_import_into(
    sandbox: &dyn Sandbox,
    folder: &GuestPath,
    members: &[Vec<u8>],
    outside: &str,
) -> Checked {
    let inside = folder.join("inside")?;
    sandbox.files().make_dir(&inside).await?;
    let imported = import(sandbox, &inside, tar(members)).await?;
    ensure!(imported.is_err(), "a member that leaves the folder was imported");
    ensure!(!sandbox.files().exists(&folder.join(outside)?).await?, "it wrote outside the folder");
    ensure!(sandbox.files().list(&inside).await?.is_empty(), "the refused import left something");
    Ok(())
}

async fn import_refuses_to_climb(bed: &Bed<'_>) -> Checked {
    let members = [member("fine", b'0', 0o644, "", b"x"), member("../escaped", b'0', 0o644, "", b"x")];
    refused_import(bed, &members, "escaped").await
}

async fn import_refuses_an_absolute_name(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let outside = folder.join("escaped")?;
    let name = String::from_utf8_lossy(outside.as_bytes()).into_owned();
    refused_import_into(&*sandbox, &folder, &[member(&name, b'0', 0o644, "", b"x")], "escaped").await
}

async fn import_refuses_what_looks_like_an_option(bed: &Bed<'_>) -> Checked {
    let members = [member("fine", b'0', 0o644, "", b"x"), member("--checkpoint=1", b'0', 0o644, "", b"x")];
    refused_import(bed, &members, "--checkpoint=1").await
}

async fn import_refuses_an_absolute_link(bed: &Bed<'_>) -> Checked {
    let members = [member("out", b'2', 0o777, "/tmp", b"")];
    refused_import(bed, &members, "out").await
}

async fn import_refuses_a_hard_link_out(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("secret")?, "secret".into()).await?;
    let members = [member("out", b'1', 0o644, "../secret", b"")];
    refused_import_into(&*sandbox, &folder, &members, "out").await
}

async fn import_refuses_what_is_no_file(bed: &Bed<'_>) -> Checked {
    for kind in *b"346" {
        refused_import(bed, &[member("special", kind, 0o666, "", b"")], "special").await?;
    }
    Ok(())
}

async fn import_refuses_a_link_out(bed: &Bed<'_>) -> Checked {
    let members = [member("out", b'2', 0o777, "..", b""), member("out/escaped", b'0', 0o644, "", b"x")];
    refused_import(bed, &members, "escaped").await
}

async fn cut_import_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let inside = folder.join("inside")?;
    sandbox.files().make_dir(&inside).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x"), member("two", b'0', 0o644, "", &[1; 2000])]);
    // Between two members, in a header, in content, before the end marker, and in it: a reader that goes by what came sees no cut in most of these.
    for cut in [2 * BLOCK, 2 * BLOCK + 100, 3 * BLOCK + 100, 7 * BLOCK, 8 * BLOCK, 9 * BLOCK - 1] {
        let imported = import(&*sandbox, &inside, whole.slice(..cut)).await?;
        ensure!(imported.is_err(), "a tar cut after {cut} bytes was imported");
        ensure!(sandbox.files().list(&inside).await?.is_empty(), "the cut import left something");
    }
    Ok(())
}

async fn cut_import_changes_nothing(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("one")?, "before".into()).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"after"), member("two", b'0', 0o644, "", b"x")]);
    let imported = import(&*sandbox, &folder, whole.slice(..2 * BLOCK)).await?;
    ensure!(imported.is_err(), "a tar cut between two members was imported");
    ensure_eq!(sandbox.files().read(&folder.join("one")?).await?, "before", "the file that was there");
    Ok(())
}

/// Imports so much of a tar, gives the import up once all of that was taken, and checks that nothing comes of it.
async fn import_that_is_given_up_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let inside = folder.join("inside")?;
    sandbox.files().make_dir(&inside).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x"), member("two", b'0', 0o644, "", &[1; 2000])]);
    // Also of one that is whole but for its end.
    for part in [whole.slice(..3 * BLOCK + 100), whole] {
        let (taken, was_taken) = oneshot::channel();
        let mut taken = Some(taken);
        let start = stream::once(async { Ok(part) });
        let rest = stream::poll_fn(move |_| {
            // Asked for more, so that what came before is on its way.
            let _ = taken.take().map(|taken| taken.send(()));
            std::task::Poll::Pending
        });
        let archive = sandbox.require_archive()?;
        let importing = archive.import(&inside, start.chain(rest).boxed());
        tokio::select! {
            imported = importing => {
                imported?;
                return fail("an import ended before its source did");
            }
            _ = was_taken => {}
        }
        eventually("what an import left is gone", async || {
            Ok(sandbox.files().list(&inside).await?.is_empty())
        })
        .await?;
    }
    Ok(())
}

async fn broken_source_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let inside = folder.join("inside")?;
    sandbox.files().make_dir(&inside).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x")]);
    let broken = sandbar_core::Error::new(ErrorKind::Unexpected, "read the source", "the source broke off");
    let body = stream::iter([Ok(whole), Err(broken)]).boxed();
    let imported = sandbox.require_archive()?.import(&inside, body).await;
    ensure!(imported.is_err(), "an import whose source failed after the end marker succeeded");
    eventually("what an import left is gone", async || Ok(sandbox.files().list(&inside).await?.is_empty()))
        .await
}

async fn export_ends_with_the_end_marker(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("top/file")?, "x".into()).await?;
    let tar = export(&*sandbox, &folder.join("top")?).await?;
    ensure!(tar.len() % BLOCK == 0, "{} bytes are no whole blocks", tar.len());
    ensure!(tar.ends_with(&[0; 2 * BLOCK]), "the end marker is missing");
    Ok(())
}

async fn export_of_one_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("file")?, "content".into()).await?;
    let tar = export(&*sandbox, &folder.join("file")?).await?;
    ensure!(tar.starts_with(b"file"), "the first member is `{}`", tar[..20.min(tar.len())].escape_ascii());
    import(&*sandbox, &folder.join("copy")?, tar.into()).await??;
    ensure_eq!(sandbox.files().read(&folder.join("copy/file")?).await?, "content", "the file");
    Ok(())
}

async fn export_leaves_owners_out(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    sandbox.files().write(&folder.join("file")?, "x".into()).await?;
    let tar = export(&*sandbox, &folder.join("file")?).await?;
    // The last header, as an extended one may come before it: content and end marker are three blocks.
    let header = &tar[tar.len().saturating_sub(4 * BLOCK)..];
    for (field, what) in [(108..116, "owner"), (116..124, "group")] {
        let digits = String::from_utf8_lossy(&header[field]).trim_matches(['\0', ' ']).to_owned();
        ensure!(digits.bytes().all(|digit| digit == b'0'), "the {what} is `{digits}`");
    }
    Ok(())
}

async fn sleeping_sandbox_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    part(sandbox.archive(), &*sandbox, "archive")?;
    let conflict = [ErrorKind::Conflict];
    expect_error(sandbox.require_archive()?.export(&at("/tmp")?).await, &conflict, "export")?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x")]);
    expect_error(import(&*sandbox, &at("/tmp/x")?, whole).await?, &conflict, "import").map(drop)
}

async fn broken_source_is_the_answer(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x")]);
    let broken = sandbar_core::Error::new(ErrorKind::Unexpected, "read the source", "the source broke off");
    let body = stream::iter([Ok(whole.slice(..BLOCK)), Err(broken)]).boxed();
    match sandbox.require_archive()?.import(&folder.join("new")?, body).await {
        Ok(_) => fail("an import whose source failed succeeded"),
        Err(error) => {
            ensure!(error.to_string().contains("the source broke off"), "another error: {error}");
            Ok(())
        }
    }
}
