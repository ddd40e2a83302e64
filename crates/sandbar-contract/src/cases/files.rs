use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{
    ByteStream, EntryKind, Error, ErrorKind, FileRange, FilesExt, GuestPath, ReadOptions, Result, Sandbox,
    UserName, WriteOptions,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, fail, sh};

group!("files";
    written_is_read, empty_file_is_read, all_byte_values_are_kept, large_file_is_kept, streamed_body_is_kept,
    empty_chunks_are_harmless, write_replaces, write_makes_the_folders_above, write_answers_the_entry,
    written_file_is_the_users, commands_see_what_was_written, commands_output_is_read, write_to_a_folder_is_invalid,
    write_below_a_file_is_an_error, failed_body_is_the_answer, failed_body_leaves_no_new_file,
    failed_empty_body_leaves_no_new_file, write_follows_a_link, concurrent_writes_are_whole, read_of_missing_is_not_found,
    read_of_a_folder_is_invalid, read_follows_a_link, read_is_a_stream, length_is_that_of_the_body,
    range_is_cut, range_without_length_goes_to_the_end, range_beyond_the_end_is_empty, range_of_nothing_is_empty,
    missing_user_is_invalid, collect_keeps_its_limit, error_names_the_path, sleeping_sandbox_is_a_conflict,
);

fn stream_of(chunks: Vec<Result<Bytes>>) -> ByteStream {
    stream::iter(chunks).boxed()
}

async fn write(sandbox: &dyn Sandbox, path: &GuestPath, content: impl Into<Bytes>) -> Checked {
    sandbox.files().write(path, content.into()).await?;
    Ok(())
}

async fn written_is_read(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    write(&*sandbox, &path, "some text\n").await?;
    ensure_eq!(sandbox.files().read(&path).await?, "some text\n", "content");
    Ok(())
}

async fn empty_file_is_read(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("empty")?;
    write(&*sandbox, &path, "").await?;
    ensure!(sandbox.files().read(&path).await?.is_empty(), "an empty file has content");
    ensure!(sandbox.files().exists(&path).await?, "an empty file does not exist");
    Ok(())
}

async fn all_byte_values_are_kept(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("bytes")?;
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    write(&*sandbox, &path, bytes.clone()).await?;
    ensure!(sandbox.files().read(&path).await? == bytes, "the bytes came back changed");
    Ok(())
}

async fn large_file_is_kept(bed: &Bed<'_>) -> Checked {
    const SIZE: usize = 8 * 1024 * 1024 + 17;
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("large")?;
    let bytes: Vec<u8> = (0..SIZE).map(|n| (n / 1000).to_le_bytes()[0] ^ n.to_le_bytes()[0]).collect();
    write(&*sandbox, &path, bytes.clone()).await?;
    let counted = sh(&*sandbox, &format!("wc -c < {path}")).await?;
    ensure_eq!(counted.stdout_lossy().trim(), SIZE.to_string(), "bytes counted inside");
    ensure!(sandbox.files().read(&path).await? == bytes, "the bytes came back changed");
    sandbox.files().remove(&path).await?;
    Ok(())
}

async fn streamed_body_is_kept(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("streamed")?;
    let chunks = (0..100).map(|n| Ok(Bytes::from(format!("chunk {n};")))).collect();
    sandbox.files().write_opts(&path, stream_of(chunks), WriteOptions::default()).await?;
    let expected = (0..100).map(|n| format!("chunk {n};")).collect::<Vec<_>>().concat();
    ensure_eq!(sandbox.files().read(&path).await?, expected, "content");
    Ok(())
}

async fn empty_chunks_are_harmless(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("chunks")?;
    let chunks = ["", "a", "", "", "b", ""].into_iter().map(|chunk| Ok(Bytes::from(chunk))).collect();
    sandbox.files().write_opts(&path, stream_of(chunks), WriteOptions::default()).await?;
    ensure_eq!(sandbox.files().read(&path).await?, "ab", "content");
    Ok(())
}

async fn write_replaces(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    write(&*sandbox, &path, "a long first content").await?;
    write(&*sandbox, &path, "short").await?;
    ensure_eq!(sandbox.files().read(&path).await?, "short", "content");
    Ok(())
}

async fn write_makes_the_folders_above(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("a/b/c/file")?;
    write(&*sandbox, &path, "deep").await?;
    ensure_eq!(sandbox.files().read(&path).await?, "deep", "content");
    Ok(())
}

async fn write_answers_the_entry(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    let entry = sandbox.files().write(&path, "12345".into()).await?;
    ensure_eq!(entry.path, path, "path");
    ensure_eq!(entry.kind, EntryKind::File, "kind");
    ensure_eq!(entry.size, 5, "size");
    Ok(())
}

async fn written_file_is_the_users(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    let entry = sandbox.files().write(&path, "first\n".into()).await?;
    let user = sh(&*sandbox, "id -un").await?;
    ensure_eq!(entry.owner, user.stdout_lossy().trim(), "owner");
    sh(&*sandbox, &format!("echo second >> {path}")).await?;
    ensure_eq!(sandbox.files().read(&path).await?, "first\nsecond\n", "content");
    Ok(())
}

async fn commands_see_what_was_written(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    write(&*sandbox, &folder.join("file")?, "seen\n").await?;
    ensure_eq!(sh(&*sandbox, &format!("cat {folder}/file")).await?.stdout_lossy(), "seen\n", "content");
    Ok(())
}

async fn commands_output_is_read(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("echo made inside > {folder}/file")).await?;
    ensure_eq!(sandbox.files().read(&folder.join("file")?).await?, "made inside\n", "content");
    Ok(())
}

async fn write_to_a_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let written = sandbox.files().write(&folder, "x".into()).await;
    expect_error(written, &[ErrorKind::InvalidInput], "a write to a folder")?;
    ensure!(sandbox.files().list(&folder).await?.is_empty(), "it left something in the folder");
    Ok(())
}

async fn write_below_a_file_is_an_error(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let file = folder.join("file")?;
    write(&*sandbox, &file, "whole").await?;
    let written = sandbox.files().write(&file.join("below")?, "x".into()).await;
    ensure!(written.is_err(), "a write below a file succeeded");
    ensure_eq!(sandbox.files().read(&file).await?, "whole", "the file");
    Ok(())
}

/// A body that breaks after `before`.
async fn write_broken(sandbox: &dyn Sandbox, path: &GuestPath, before: &'static str) -> Checked<Error> {
    let broken = Error::new(ErrorKind::Unexpected, "read the source", "the source broke off");
    let mut chunks = vec![Err(broken)];
    if !before.is_empty() {
        chunks.insert(0, Ok(Bytes::from_static(before.as_bytes())));
    }
    match sandbox.files().write_opts(path, stream_of(chunks), WriteOptions::default()).await {
        Ok(_) => fail("a write whose body failed succeeded"),
        Err(error) => Ok(error),
    }
}

async fn failed_body_is_the_answer(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let error = write_broken(&*sandbox, &folder.join("broken")?, "half").await?;
    ensure_eq!(error.kind(), ErrorKind::Unexpected, "kind");
    ensure!(error.to_string().contains("the source broke off"), "another error: {error}");
    Ok(())
}

async fn failed_body_leaves_no_new_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("broken")?;
    write_broken(&*sandbox, &path, "half").await?;
    ensure!(!sandbox.files().exists(&path).await?, "half a file is left");
    let left = sandbox.files().list(&folder).await?;
    ensure!(left.is_empty(), "something is left beside it: {left:?}");
    Ok(())
}

async fn failed_empty_body_leaves_no_new_file(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("broken")?;
    write_broken(&*sandbox, &path, "").await?;
    ensure!(!sandbox.files().exists(&path).await?, "an empty file is left");
    Ok(())
}

async fn write_follows_a_link(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("mkdir {folder}/real && ln -s {folder}/real {folder}/link")).await?;
    write(&*sandbox, &folder.join("link/file")?, "through").await?;
    ensure_eq!(sandbox.files().read(&folder.join("real/file")?).await?, "through", "content");
    Ok(())
}

async fn concurrent_writes_are_whole(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let one = async |number: usize| {
        let path = folder.join(format!("file-{number}"))?;
        let content = number.to_string().repeat(20_000);
        write(&*sandbox, &path, content.clone()).await?;
        ensure!(sandbox.files().read(&path).await? == content, "file {number} is not whole");
        Checked::Ok(())
    };
    futures::future::try_join_all((0..8).map(one)).await.map(drop)
}

async fn read_of_missing_is_not_found(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    for missing in ["none", "no/such/folder/file"] {
        let read = sandbox.files().read(&folder.join(missing)?).await;
        expect_error(read, &[ErrorKind::NotFound], "a read of a missing file")?;
    }
    Ok(())
}

async fn read_of_a_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let read = sandbox.files().read(&folder).await;
    expect_error(read, &[ErrorKind::InvalidInput], "a read of a folder").map(drop)
}

async fn read_follows_a_link(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh(&*sandbox, &format!("echo content > {folder}/real && ln -s real {folder}/link")).await?;
    ensure_eq!(sandbox.files().read(&folder.join("link")?).await?, "content\n", "content");
    Ok(())
}

async fn read_is_a_stream(bed: &Bed<'_>) -> Checked {
    const SIZE: usize = 4 * 1024 * 1024;
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("large")?;
    write(&*sandbox, &path, vec![7; SIZE]).await?;
    let mut body = sandbox.files().read_opts(&path, ReadOptions::default()).await?.body;
    let (mut total, mut largest) = (0, 0);
    while let Some(chunk) = body.try_next().await? {
        total += chunk.len();
        largest = largest.max(chunk.len());
    }
    ensure_eq!(total, SIZE, "bytes");
    ensure!(largest < SIZE, "the whole file came as one chunk");
    Ok(())
}

async fn length_is_that_of_the_body(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    write(&*sandbox, &path, "0123456789").await?;
    let read = sandbox.files().read_opts(&path, ReadOptions::default()).await?;
    let length = read.length;
    let body = read.collect(100).await?;
    ensure!(length.is_none_or(|length| length == body.len() as u64), "length {length:?} of {}", body.len());
    Ok(())
}

async fn ranged(bed: &Bed<'_>, start: u64, length: Option<u64>, expected: &str) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    write(&*sandbox, &path, "0123456789").await?;
    let options = ReadOptions { range: Some(FileRange { start, length }), ..ReadOptions::default() };
    let read = sandbox.files().read_opts(&path, options).await?;
    if let Some(length) = read.length {
        ensure_eq!(length, expected.len() as u64, "length told");
    }
    ensure_eq!(read.collect(100).await?, expected, "bytes");
    Ok(())
}

async fn range_is_cut(bed: &Bed<'_>) -> Checked {
    ranged(bed, 2, Some(3), "234").await?;
    ranged(bed, 8, Some(100), "89").await
}

async fn range_without_length_goes_to_the_end(bed: &Bed<'_>) -> Checked {
    ranged(bed, 7, None, "789").await
}

async fn range_beyond_the_end_is_empty(bed: &Bed<'_>) -> Checked {
    ranged(bed, 100, Some(5), "").await?;
    ranged(bed, 10, None, "").await
}

async fn range_of_nothing_is_empty(bed: &Bed<'_>) -> Checked {
    ranged(bed, 3, Some(0), "").await
}

async fn missing_user_is_invalid(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    let options = WriteOptions { user: Some(UserName::new("no-such-user")?) };
    let written = sandbox.files().write_opts(&path, stream_of(vec![Ok("x".into())]), options).await;
    expect_error(written, &[ErrorKind::InvalidInput], "a write as a missing user")?;
    ensure!(!sandbox.files().exists(&path).await?, "the refused write left a file");
    Ok(())
}

async fn collect_keeps_its_limit(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("file")?;
    write(&*sandbox, &path, "0123456789").await?;
    let read = async || sandbox.files().read_opts(&path, ReadOptions::default()).await;
    expect_error(read().await?.collect(9).await, &[ErrorKind::LimitExceeded], "ten bytes into nine")?;
    ensure_eq!(read().await?.collect(10).await?, "0123456789", "ten bytes into ten");
    Ok(())
}

async fn error_names_the_path(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("not-there")?;
    let error = expect_error(sandbox.files().read(&path).await, &[ErrorKind::NotFound], "a read")?;
    let named = format!("{error} {:?}", error.resource()).contains("not-there");
    ensure!(named, "the error does not name the path: {error}");
    Ok(())
}

async fn sleeping_sandbox_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    let files = sandbox.files();
    let path = at("/tmp/x")?;
    let conflict = [ErrorKind::Conflict];
    expect_error(files.read(&path).await, &conflict, "read")?;
    expect_error(files.write(&path, "x".into()).await, &conflict, "write")?;
    expect_error(files.stat(&path).await, &conflict, "stat")?;
    expect_error(files.list(&at("/tmp")?).await, &conflict, "list")?;
    expect_error(files.make_dir(&path).await, &conflict, "make_dir")?;
    expect_error(files.remove(&path).await, &conflict, "remove")?;
    Ok(())
}
