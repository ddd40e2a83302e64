use std::collections::BTreeSet;

use futures::StreamExt;
use sandbar_core::{ProjectId, ProviderExt, Query, SandboxId, SandboxRecord, State};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, fail};
use crate::harness::Fault;

group!("list";
    holds_all, holds_each_once, filters_by_label, labels_are_anded, label_values_match_whole,
    filters_by_project, filters_by_state, filters_are_anded, no_match_is_empty, empty_query_holds_all,
    destroyed_is_not_listed, records_are_those_of_describe, does_not_wake, does_not_extend,
    broken_listing_is_an_error,
);

fn ids(records: &[SandboxRecord]) -> BTreeSet<SandboxId> {
    records.iter().map(|record| record.id.clone()).collect()
}

async fn holds_all(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let mut made = BTreeSet::new();
    for _ in 0..4 {
        made.insert(bed.create(options.clone()).await?.id().clone());
    }
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure_eq!(ids(&listed), made, "sandboxes listed");
    Ok(())
}

async fn holds_each_once(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    for _ in 0..3 {
        bed.create(options.clone()).await?;
    }
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure_eq!(listed.len(), 3, "rows for three sandboxes");
    ensure_eq!(ids(&listed).len(), 3, "different ids");
    Ok(())
}

async fn filters_by_label(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let sandbox = bed.create(options).await?;
    bed.fresh().await?;
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure_eq!(ids(&listed), BTreeSet::from([sandbox.id().clone()]), "sandboxes with the label");
    Ok(())
}

async fn labels_are_anded(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let mut both = options.clone();
    both.labels.insert("second", "yes")?;
    let wanted = bed.create(both).await?;
    bed.create(options).await?;
    let listed = bed.provider().list_all(Query::new().with_labels(mark.with("second", "yes")?)).await?;
    ensure_eq!(ids(&listed), BTreeSet::from([wanted.id().clone()]), "sandboxes with both labels");
    Ok(())
}

async fn label_values_match_whole(bed: &Bed<'_>) -> Checked {
    let (mut options, mark) = bed.marked_options()?;
    options.labels.insert("colour", "green")?;
    bed.create(options).await?;
    for value in ["gree", "greener", "GREEN", ""] {
        let query = Query::new().with_labels(mark.clone().with("colour", value)?);
        let listed = bed.provider().list_all(query).await?;
        ensure!(listed.is_empty(), "`{value}` matched `green`");
    }
    Ok(())
}

async fn filters_by_project(bed: &Bed<'_>) -> Checked {
    let project = ProjectId::new(bed.unique("project"))?;
    let sandbox = bed.create(bed.options()?.with_project(project.clone())).await?;
    bed.fresh().await?;
    let listed = bed.provider().list_all(Query::new().with_project(project)).await?;
    ensure_eq!(ids(&listed), BTreeSet::from([sandbox.id().clone()]), "sandboxes of the project");
    Ok(())
}

async fn filters_by_state(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let sandbox = bed.create(options).await?;
    let query = |state| Query::new().with_labels(mark.clone()).with_states([state]);
    let running = bed.provider().list_all(query(State::Running)).await?;
    ensure_eq!(ids(&running), BTreeSet::from([sandbox.id().clone()]), "those that run");
    let sleeping = bed.provider().list_all(query(State::Sleeping)).await?;
    ensure!(sleeping.is_empty(), "a running sandbox is listed as sleeping");
    Ok(())
}

async fn filters_are_anded(bed: &Bed<'_>) -> Checked {
    let project = ProjectId::new(bed.unique("project"))?;
    let (options, mark) = bed.marked_options()?;
    let wanted = bed.create(options.clone().with_project(project.clone())).await?;
    bed.create(options).await?;
    bed.create(bed.options()?.with_project(project.clone())).await?;
    let query = Query::new().with_labels(mark).with_project(project).with_states([State::Running]);
    let listed = bed.provider().list_all(query).await?;
    ensure_eq!(ids(&listed), BTreeSet::from([wanted.id().clone()]), "what matches all three");
    Ok(())
}

async fn no_match_is_empty(bed: &Bed<'_>) -> Checked {
    let (_, mark) = bed.marked_options()?;
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure!(listed.is_empty(), "{} sandboxes match a label that none has", listed.len());
    Ok(())
}

async fn empty_query_holds_all(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let listed = bed.provider().list_all(Query::new()).await?;
    ensure!(ids(&listed).contains(sandbox.id()), "`{}` is not among all sandboxes", sandbox.id());
    Ok(())
}

async fn destroyed_is_not_listed(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let sandbox = bed.create(options).await?;
    bed.provider().destroy(sandbox.id()).await?;
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure!(listed.is_empty(), "a destroyed sandbox is listed");
    Ok(())
}

async fn records_are_those_of_describe(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let sandbox = bed.create(options.with_name(bed.name()?)).await?;
    let listed = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    let described = bed.describe(sandbox.id()).await?;
    let json = |record: &SandboxRecord| serde_json::to_value(record).ok();
    ensure_eq!(listed.first().and_then(json), json(&described), "the record");
    Ok(())
}

async fn does_not_wake(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    bed.provider().list_all(Query::new()).await?;
    ensure_eq!(bed.describe(sandbox.id()).await?.state, State::Sleeping, "state after list");
    Ok(())
}

async fn does_not_extend(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let sandbox = bed.create(options.with_deadline(std::time::Duration::from_secs(600))).await?;
    let before = bed.describe(sandbox.id()).await?.deadline;
    // The clock has to move for an extension to show.
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    bed.provider().list_all(Query::new().with_labels(mark)).await?;
    ensure!(before.is_some(), "the deadline asked for is not in the record");
    ensure_eq!(bed.describe(sandbox.id()).await?.deadline, before, "deadline after list");
    Ok(())
}

async fn broken_listing_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    for _ in 0..3 {
        faulty.provider().create(faulty.options.clone()).await?;
    }
    faulty.arm(Fault::Listing)?;
    let Ok(mut rows) = faulty.provider().list(Query::new()).await else { return Ok(()) };
    let mut last = None;
    while let Some(row) = rows.next().await {
        last = Some(row);
    }
    match last {
        Some(Err(_)) => Ok(()),
        _ => fail("a listing that broke off ended without an error"),
    }
}
