use std::sync::Arc;

use sandbar_core::{
    ErrorKind, FilesExt, ForkOptions, Sandbox, SandboxProvider, VolumeMount, VolumeName, VolumeQuery, Volumes,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, provider_part, sh};
use crate::harness::Fault;

group!("volumes";
    create_says_true_then_false, exists_says_both, content_outlives_the_sandbox, create_again_keeps_the_content,
    commands_write_to_it, is_in_the_record, remove_says_true_then_false, attached_is_not_removed,
    destroy_of_a_sandbox_keeps_it, list_holds_each_once, list_filters_by_prefix, list_filters_by_attachment,
    sleeping_counts_as_attached, attachment_ends_with_the_last_holder, hides_what_the_template_has,
    missing_folders_are_made, sandboxes_share_it, belongs_to_the_user, sleep_loses_no_write,
    destroy_loses_no_write, size_is_told, fork_does_not_share_it_unasked, failed_lookup_is_an_error,
);

fn part(provider: &dyn SandboxProvider) -> Checked<&dyn Volumes> {
    provider_part(provider.volumes(), provider, "volumes")
}

async fn volume(bed: &Bed<'_>) -> Checked<VolumeName> {
    let volumes = part(bed.provider())?;
    let name = bed.volume()?;
    volumes.create(&name).await?;
    Ok(name)
}

async fn with(bed: &Bed<'_>, volume: &VolumeName) -> Checked<Arc<dyn Sandbox>> {
    let mount = VolumeMount { volume: volume.clone(), path: at("/mnt/volume")? };
    Ok(bed.create(bed.options()?.with_volume(mount)).await?)
}

async fn create_says_true_then_false(bed: &Bed<'_>) -> Checked {
    let volumes = part(bed.provider())?;
    let name = bed.volume()?;
    ensure!(volumes.create(&name).await?, "a new volume was said to be there already");
    ensure!(!volumes.create(&name).await?, "an existing volume was said to be new");
    Ok(())
}

async fn exists_says_both(bed: &Bed<'_>) -> Checked {
    let volumes = part(bed.provider())?;
    ensure!(volumes.exists(&volume(bed).await?).await?, "a volume does not exist");
    ensure!(!volumes.exists(&bed.volume()?).await?, "an unknown volume exists");
    Ok(())
}

async fn content_outlives_the_sandbox(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let first = with(bed, &name).await?;
    let path = at("/mnt/volume/file")?;
    first.files().write(&path, "kept".into()).await?;
    bed.provider().destroy(first.id()).await?;
    let second = with(bed, &name).await?;
    ensure_eq!(second.files().read(&path).await?, "kept", "content");
    Ok(())
}

async fn create_again_keeps_the_content(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    let path = at("/mnt/volume/file")?;
    sandbox.files().write(&path, "kept".into()).await?;
    bed.provider().destroy(sandbox.id()).await?;
    part(bed.provider())?.create(&name).await?;
    ensure_eq!(with(bed, &name).await?.files().read(&path).await?, "kept", "content");
    Ok(())
}

async fn commands_write_to_it(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, &volume(bed).await?).await?;
    let output = sh(&*sandbox, "echo inside > /mnt/volume/file && cat /mnt/volume/file").await?;
    ensure_eq!(output.stdout_lossy(), "inside\n", "content");
    Ok(())
}

async fn is_in_the_record(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    let attached = bed.describe(sandbox.id()).await?.volumes;
    ensure_eq!(attached.len(), 1, "volumes in the record");
    ensure_eq!((&attached[0].name, &attached[0].path), (&name, &at("/mnt/volume")?), "the volume");
    Ok(())
}

async fn remove_says_true_then_false(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let volumes = part(bed.provider())?;
    ensure!(volumes.remove(&name).await?, "a volume was said to be absent");
    ensure!(!volumes.remove(&name).await?, "a removed volume was said to be there");
    ensure!(!volumes.exists(&name).await?, "a removed volume exists");
    Ok(())
}

async fn attached_is_not_removed(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    let volumes = part(bed.provider())?;
    expect_error(volumes.remove(&name).await, &[ErrorKind::Conflict], "removal of an attached volume")?;
    ensure!(volumes.exists(&name).await?, "it is gone all the same");
    bed.provider().destroy(sandbox.id()).await?;
    ensure!(volumes.remove(&name).await?, "it can't be removed once it is free");
    Ok(())
}

async fn destroy_of_a_sandbox_keeps_it(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    bed.provider().destroy(sandbox.id()).await?;
    ensure!(part(bed.provider())?.exists(&name).await?, "the volume went with its sandbox");
    Ok(())
}

async fn names(bed: &Bed<'_>, prefix: &str, attached: Option<bool>) -> Checked<Vec<VolumeName>> {
    let query = VolumeQuery { prefix: prefix.to_owned(), attached };
    Ok(part(bed.provider())?.list(query).await?.into_iter().map(|volume| volume.name).collect())
}

async fn list_holds_each_once(bed: &Bed<'_>) -> Checked {
    let (one, other) = (volume(bed).await?, volume(bed).await?);
    let all = names(bed, "", None).await?;
    for name in [one, other] {
        ensure_eq!(all.iter().filter(|listed| **listed == name).count(), 1, format!("rows for `{name}`"));
    }
    Ok(())
}

async fn list_filters_by_prefix(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    ensure_eq!(names(bed, name.as_str(), None).await?, vec![name.clone()], "volumes with the whole name");
    ensure!(names(bed, &format!("{name}x"), None).await?.is_empty(), "a longer prefix matches");
    Ok(())
}

async fn list_filters_by_attachment(bed: &Bed<'_>) -> Checked {
    let (held, free) = (volume(bed).await?, volume(bed).await?);
    with(bed, &held).await?;
    let attached = names(bed, "", Some(true)).await?;
    ensure!(attached.contains(&held) && !attached.contains(&free), "attached ones: {attached:?}");
    let unattached = names(bed, "", Some(false)).await?;
    ensure!(!unattached.contains(&held) && unattached.contains(&free), "unattached ones: {unattached:?}");
    Ok(())
}

async fn sleeping_counts_as_attached(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    crate::check::part(sandbox.pausing(), &*sandbox, "pausing")?.hibernate().await?;
    ensure!(names(bed, "", Some(true)).await?.contains(&name), "a sleeping sandbox's volume is unattached");
    Ok(())
}

async fn attachment_ends_with_the_last_holder(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let (one, other) = (with(bed, &name).await?, with(bed, &name).await?);
    let volumes = part(bed.provider())?;
    bed.provider().destroy(one.id()).await?;
    expect_error(volumes.remove(&name).await, &[ErrorKind::Conflict], "removal under the other holder")?;
    bed.provider().destroy(other.id()).await?;
    ensure!(names(bed, name.as_str(), Some(false)).await?.contains(&name), "attached to nobody");
    ensure!(volumes.remove(&name).await?, "it can't be removed once it is free");
    Ok(())
}

async fn missing_folders_are_made(bed: &Bed<'_>) -> Checked {
    let path = at("/mnt/not/there/yet")?;
    let mount = VolumeMount { volume: volume(bed).await?, path: path.clone() };
    let sandbox = bed.create(bed.options()?.with_volume(mount)).await?;
    sandbox.files().write(&at("/mnt/not/there/yet/file")?, "x".into()).await?;
    ensure_eq!(sandbox.files().list(&path).await?.len(), 1, "entries of it");
    Ok(())
}

async fn sandboxes_share_it(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let (one, other) = (with(bed, &name).await?, with(bed, &name).await?);
    let path = at("/mnt/volume/file")?;
    one.files().write(&path, "one's".into()).await?;
    ensure_eq!(other.files().read(&path).await?, "one's", "what the one wrote");
    other.files().write(&path, "other's".into()).await?;
    ensure_eq!(one.files().read(&path).await?, "other's", "what the other wrote");
    Ok(())
}

async fn belongs_to_the_user(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, &volume(bed).await?).await?;
    let entry = sandbox.files().stat(&at("/mnt/volume")?).await?;
    ensure_eq!(entry.map(|entry| entry.owner), Some("user".to_owned()), "its owner");
    Ok(())
}

async fn sleep_loses_no_write(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    let pausing = crate::check::part(sandbox.pausing(), &*sandbox, "pausing")?;
    let path = at("/mnt/volume/file")?;
    sandbox.files().write(&path, "kept".into()).await?;
    pausing.hibernate().await?;
    pausing.resume().await?;
    ensure_eq!(sandbox.files().read(&path).await?, "kept", "content after a sleep");
    Ok(())
}

async fn destroy_loses_no_write(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    sh(&*sandbox, "echo last > /mnt/volume/file").await?;
    bed.provider().destroy(sandbox.id()).await?;
    let next = with(bed, &name).await?;
    ensure_eq!(next.files().read(&at("/mnt/volume/file")?).await?, "last\n", "the last write");
    Ok(())
}

async fn size_is_told(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    sandbox.files().write(&at("/mnt/volume/file")?, vec![b'x'; 100_000].into()).await?;
    let query = VolumeQuery { prefix: name.to_string(), attached: None };
    let listed = part(bed.provider())?.list(query).await?;
    let Some(info) = listed.first() else { return crate::check::fail("it is not listed") };
    ensure!(info.size_bytes.is_none_or(|bytes| bytes >= 100_000), "100,000 bytes are {:?}", info.size_bytes);
    Ok(())
}

async fn fork_does_not_share_it_unasked(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let sandbox = with(bed, &name).await?;
    let path = at("/mnt/volume/file")?;
    sandbox.files().write(&path, "parent's".into()).await?;
    let forking = crate::check::part(sandbox.forking(), &*sandbox, "forking")?;
    // Refused, or without a way to write to it.
    if let Ok((copy, _)) = forking.fork(ForkOptions::default()).await {
        bed.adopt(copy.id());
        let _ = copy.files().write(&path, "copy's".into()).await;
    }
    ensure_eq!(sandbox.files().read(&path).await?, "parent's", "the parent's file");
    Ok(())
}

async fn hides_what_the_template_has(bed: &Bed<'_>) -> Checked {
    let name = volume(bed).await?;
    let mount = VolumeMount { volume: name, path: at("/home/user")? };
    let sandbox = bed.create(bed.options()?.with_volume(mount)).await?;
    sandbox.files().write(&at("/home/user/file")?, "x".into()).await?;
    let names: Vec<_> = sandbox.files().list(&at("/home/user")?).await?;
    ensure_eq!(names.len(), 1, "entries of a new volume over a folder of the template");
    Ok(())
}

async fn failed_lookup_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let volumes = part(faulty.provider())?;
    let name = VolumeName::new("none")?;
    faulty.arm(Fault::Volumes)?;
    ensure!(volumes.exists(&name).await.is_err(), "a lookup that failed answered");
    faulty.arm(Fault::Volumes)?;
    ensure!(volumes.list(VolumeQuery::default()).await.is_err(), "a listing that failed answered");
    faulty.arm(Fault::Volumes)?;
    ensure!(volumes.remove(&name).await.is_err(), "a removal that failed answered");
    Ok(())
}
