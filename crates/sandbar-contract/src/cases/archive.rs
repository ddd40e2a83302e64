use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{ErrorKind, FilesExt, GuestPath, Sandbox, SandboxExt};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, part, sh};

group!("archive";
    export_and_import_round_trip, export_is_rooted_at_the_last_segment, export_of_the_root_is_refused,
    export_of_missing_is_not_found, import_of_nothing_is_an_error, import_drops_privilege_bits,
    import_refuses_to_climb, import_refuses_a_link_out, cut_import_leaves_nothing, broken_source_is_the_answer,
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
        return crate::check::fail("the member was not unpacked");
    };
    ensure_eq!(entry.mode & 0o7000, 0, "privilege bits");
    ensure!(entry.owner != "root", "the owner in the tar was restored");
    Ok(())
}

async fn refused_import(bed: &Bed<'_>, members: &[Vec<u8>], outside: &str) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let inside = folder.join("inside")?;
    sandbox.files().make_dir(&inside).await?;
    let imported = import(&*sandbox, &inside, tar(members)).await?;
    ensure!(imported.is_err(), "a member that leaves the folder was imported");
    ensure!(!sandbox.files().exists(&folder.join(outside)?).await?, "it wrote outside the folder");
    ensure!(sandbox.files().list(&inside).await?.is_empty(), "the refused import left something");
    Ok(())
}

async fn import_refuses_to_climb(bed: &Bed<'_>) -> Checked {
    let members = [member("fine", b'0', 0o644, "", b"x"), member("../escaped", b'0', 0o644, "", b"x")];
    refused_import(bed, &members, "escaped").await
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
    for cut in [2 * BLOCK, 3 * BLOCK + 100] {
        let imported = import(&*sandbox, &inside, whole.slice(..cut)).await?;
        ensure!(imported.is_err(), "a tar cut after {cut} bytes was imported");
        ensure!(sandbox.files().list(&inside).await?.is_empty(), "the cut import left something");
    }
    Ok(())
}

async fn broken_source_is_the_answer(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = place(bed).await?;
    let whole = tar(&[member("one", b'0', 0o644, "", b"x")]);
    let broken = sandbar_core::Error::new(ErrorKind::Unexpected, "read the source", "the source broke off");
    let body = stream::iter([Ok(whole.slice(..BLOCK)), Err(broken)]).boxed();
    match sandbox.require_archive()?.import(&folder.join("new")?, body).await {
        Ok(_) => crate::check::fail("an import whose source failed succeeded"),
        Err(error) => {
            ensure!(error.to_string().contains("the source broke off"), "another error: {error}");
            Ok(())
        }
    }
}
