use std::sync::Arc;

use sandbar_core::{EnvVars, ErrorKind, FilesExt, ForkOptions, ForkOutcome, Sandbox, SandboxExt};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, part, sh};

group!("forking";
    copy_has_the_files, copy_goes_its_own_way, copy_has_an_id_of_its_own, copy_keeps_labels_and_template,
    copy_keeps_the_environment, copy_takes_the_name_asked_for, copy_does_not_take_the_parents_name,
    taken_name_is_already_exists, outcome_is_what_happened, parent_is_untouched, copy_outlives_its_parent,
);

async fn parent(bed: &Bed<'_>) -> Checked<Arc<dyn Sandbox>> {
    let shared = bed.shared().await?;
    part(shared.forking(), &*shared, "forking")?;
    let sandbox = bed.fresh().await?;
    sandbox.files().write(&at("/tmp/file")?, "parent's".into()).await?;
    Ok(sandbox)
}

async fn fork(
    bed: &Bed<'_>,
    parent: &dyn Sandbox,
    options: ForkOptions,
) -> Checked<(Arc<dyn Sandbox>, ForkOutcome)> {
    let (copy, outcome) = parent.require_forking()?.fork(options).await?;
    bed.adopt(copy.id());
    Ok((copy, outcome))
}

async fn copy_has_the_files(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    ensure_eq!(copy.files().read(&at("/tmp/file")?).await?, "parent's", "the file");
    Ok(())
}

async fn copy_goes_its_own_way(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    let path = at("/tmp/file")?;
    copy.files().write(&path, "copy's".into()).await?;
    parent.files().write(&at("/tmp/later")?, "x".into()).await?;
    ensure_eq!(parent.files().read(&path).await?, "parent's", "the parent's file");
    ensure!(!copy.files().exists(&at("/tmp/later")?).await?, "a later file of the parent is in the copy");
    Ok(())
}

async fn copy_has_an_id_of_its_own(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    ensure!(copy.id() != parent.id(), "the copy has its parent's id");
    ensure_eq!(bed.describe(copy.id()).await?.id, *copy.id(), "the id described");
    Ok(())
}

async fn copy_keeps_labels_and_template(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    let (mine, theirs) = (bed.describe(copy.id()).await?, bed.describe(parent.id()).await?);
    ensure!(
        mine.labels.contains_all(&theirs.labels),
        "labels: {:?}, parent's {:?}",
        mine.labels,
        theirs.labels
    );
    ensure_eq!(mine.template, theirs.template, "template");
    ensure_eq!(mine.egress.policy, theirs.egress.policy, "policy");
    Ok(())
}

async fn copy_keeps_the_environment(bed: &Bed<'_>) -> Checked {
    parent(bed).await?;
    let env = EnvVars::new().with("KIT", "inherited")?;
    let parent = bed.create(bed.options()?.with_env(env)).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    ensure_eq!(sh(&*copy, "echo $KIT").await?.stdout_lossy(), "inherited\n", "the variable");
    Ok(())
}

async fn copy_takes_the_name_asked_for(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let name = bed.name()?;
    let options = ForkOptions { name: Some(name.clone()), ..ForkOptions::default() };
    let (copy, _) = fork(bed, &*parent, options).await?;
    ensure_eq!(bed.describe(copy.id()).await?.name, Some(name), "name");
    Ok(())
}

async fn copy_does_not_take_the_parents_name(bed: &Bed<'_>) -> Checked {
    parent(bed).await?;
    let parent = bed.create(bed.options()?.with_name(bed.name()?)).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    ensure_eq!(bed.describe(copy.id()).await?.name, None, "name");
    Ok(())
}

async fn taken_name_is_already_exists(bed: &Bed<'_>) -> Checked {
    parent(bed).await?;
    let name = bed.name()?;
    let parent = bed.create(bed.options()?.with_name(name.clone())).await?;
    let options = ForkOptions { name: Some(name), ..ForkOptions::default() };
    let forked = parent.require_forking()?.fork(options).await.map(|(copy, _)| bed.adopt(copy.id()));
    expect_error(forked, &[ErrorKind::AlreadyExists], "a fork under a taken name").map(drop)
}

async fn outcome_is_what_happened(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let output = sh(&*parent, "sleep 600 >/dev/null 2>&1 & echo $!").await?;
    let pid = output.stdout_lossy().trim().to_owned();
    let (copy, outcome) = fork(bed, &*parent, ForkOptions::default()).await?;
    let probe = format!("kill -0 {pid} 2>/dev/null && echo alive || echo gone");
    let alive = sh(&*copy, &probe).await?.stdout_lossy() == "alive\n";
    ensure!(!outcome.processes_preserved || alive, "the processes are said to run in the copy and do not");
    ensure!(!outcome.mechanism.is_empty(), "no mechanism is named");
    Ok(())
}

async fn parent_is_untouched(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let output = sh(&*parent, "sleep 600 >/dev/null 2>&1 & echo $!").await?;
    let pid = output.stdout_lossy().trim().to_owned();
    fork(bed, &*parent, ForkOptions::default()).await?;
    let probe = format!("kill -0 {pid} 2>/dev/null && echo alive || echo gone");
    ensure_eq!(sh(&*parent, &probe).await?.stdout_lossy(), "alive\n", "the parent's process");
    ensure_eq!(parent.files().read(&at("/tmp/file")?).await?, "parent's", "the parent's file");
    Ok(())
}

async fn copy_outlives_its_parent(bed: &Bed<'_>) -> Checked {
    let parent = parent(bed).await?;
    let (copy, _) = fork(bed, &*parent, ForkOptions::default()).await?;
    bed.provider().destroy(parent.id()).await?;
    ensure_eq!(copy.files().read(&at("/tmp/file")?).await?, "parent's", "the file");
    sh(&*copy, "true").await.map(drop)
}
