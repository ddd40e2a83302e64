use sandbar_core::{
    CommitOptions, ErrorKind, FilesExt, Sandbox, SandboxProvider, Template, TemplateId, Templates,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error, fail, provider_part};
use crate::harness::Fault;

group!("templates";
    commit_answers_the_id, committed_is_found, committed_is_listed, list_filters_by_prefix, absent_is_none,
    sandbox_boots_from_it, sandbox_from_it_names_it, commit_again_replaces, label_is_kept, missing_path_is_an_error,
    commit_of_an_unknown_sandbox_is_not_found, remove_says_true_then_false, in_use_is_told,
    in_use_is_not_removed, outlives_its_sandbox, failed_lookup_is_an_error,
);

fn part(provider: &dyn SandboxProvider) -> Checked<&dyn Templates> {
    provider_part(provider.templates(), provider, "templates")
}

async fn commit(
    bed: &Bed<'_>,
    sandbox: &dyn Sandbox,
    id: &TemplateId,
    content: &'static str,
) -> Checked<Template> {
    sandbox.files().write(&at("/home/user/marker")?, content.into()).await?;
    let options = CommitOptions {
        sandbox: sandbox.id().clone(),
        template: id.clone(),
        capture_paths: vec![at("/home/user/marker")?],
        label: Some("a word".to_owned()),
    };
    Ok(part(bed.provider())?.commit(options).await?)
}

/// A template with a marker in it.
async fn committed(bed: &Bed<'_>) -> Checked<(TemplateId, Template)> {
    part(bed.provider())?;
    let id = bed.template()?;
    let sandbox = bed.fresh().await?;
    let template = commit(bed, &*sandbox, &id, "captured").await?;
    Ok((id, template))
}

async fn commit_answers_the_id(bed: &Bed<'_>) -> Checked {
    let (id, template) = committed(bed).await?;
    ensure_eq!(template.id, id, "the id");
    ensure!(!template.reference.is_empty(), "there is no reference");
    Ok(())
}

async fn committed_is_found(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    match part(bed.provider())?.get(&id).await? {
        Some(template) => ensure_eq!(template.id, id, "the id found"),
        None => return fail("a committed template is absent"),
    }
    Ok(())
}

async fn committed_is_listed(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let listed = part(bed.provider())?.list("").await?;
    let rows = listed.iter().filter(|template| template.id == id).count();
    ensure_eq!(rows, 1, "rows for the template");
    Ok(())
}

async fn list_filters_by_prefix(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let templates = part(bed.provider())?;
    ensure_eq!(templates.list(id.as_str()).await?.len(), 1, "templates with the whole id as prefix");
    ensure!(templates.list(&format!("{id}x")).await?.is_empty(), "a longer prefix matches");
    let other = &id.as_str()[1..];
    ensure!(templates.list(other).await?.is_empty(), "what is no prefix matches");
    Ok(())
}

async fn absent_is_none(bed: &Bed<'_>) -> Checked {
    let found = part(bed.provider())?.get(&bed.template()?).await?;
    ensure!(found.is_none(), "found {found:?}");
    Ok(())
}

async fn sandbox_boots_from_it(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let sandbox = bed.create(bed.options()?.with_template(id)).await?;
    ensure_eq!(sandbox.files().read(&at("/home/user/marker")?).await?, "captured", "the marker");
    Ok(())
}

async fn sandbox_from_it_names_it(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let sandbox = bed.create(bed.options()?.with_template(id.clone())).await?;
    let named = bed.describe(sandbox.id()).await?.template;
    ensure!(named.as_deref().is_none_or(|named| named == id.as_str()), "the record names {named:?}");
    Ok(())
}

async fn commit_again_replaces(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let sandbox = bed.fresh().await?;
    commit(bed, &*sandbox, &id, "again").await?;
    let listed = part(bed.provider())?.list(id.as_str()).await?;
    ensure_eq!(listed.len(), 1, "templates of this id");
    let sandbox = bed.create(bed.options()?.with_template(id)).await?;
    ensure_eq!(sandbox.files().read(&at("/home/user/marker")?).await?, "again", "the marker");
    Ok(())
}

async fn label_is_kept(bed: &Bed<'_>) -> Checked {
    let (id, template) = committed(bed).await?;
    ensure_eq!(template.label.as_deref(), Some("a word"), "the label answered");
    let found = part(bed.provider())?.get(&id).await?.and_then(|template| template.label);
    ensure_eq!(found.as_deref(), Some("a word"), "the label found");
    Ok(())
}

async fn missing_path_is_an_error(bed: &Bed<'_>) -> Checked {
    let templates = part(bed.provider())?;
    let (sandbox, id) = (bed.fresh().await?, bed.template()?);
    let options = CommitOptions {
        sandbox: sandbox.id().clone(),
        template: id.clone(),
        capture_paths: vec![at("/no/such/path")?],
        label: None,
    };
    ensure!(templates.commit(options).await.is_err(), "a path that does not exist was captured");
    ensure!(templates.get(&id).await?.is_none(), "the failed commit left a template");
    Ok(())
}

async fn commit_of_an_unknown_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let templates = part(bed.provider())?;
    let (sandbox, template) = (bed.absent_id()?, bed.template()?);
    let options = CommitOptions { sandbox, template, capture_paths: Vec::new(), label: None };
    expect_error(templates.commit(options).await, &[ErrorKind::NotFound], "a commit of nothing").map(drop)
}

async fn remove_says_true_then_false(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let templates = part(bed.provider())?;
    ensure!(templates.remove(&id).await?, "a template was said to be absent");
    ensure!(!templates.remove(&id).await?, "a removed template was said to be there");
    Ok(())
}

async fn in_use_is_told(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let templates = part(bed.provider())?;
    let sandbox = bed.create(bed.options()?.with_template(id.clone())).await?;
    let used = templates.get(&id).await?.map(|template| template.in_use);
    ensure_eq!(used, Some(true), "in use with a sandbox");
    bed.provider().destroy(sandbox.id()).await?;
    ensure!(templates.remove(&id).await?, "it can't be removed after its last sandbox is gone");
    Ok(())
}

async fn in_use_is_not_removed(bed: &Bed<'_>) -> Checked {
    let (id, _) = committed(bed).await?;
    let templates = part(bed.provider())?;
    let sandbox = bed.create(bed.options()?.with_template(id.clone())).await?;
    expect_error(templates.remove(&id).await, &[ErrorKind::Conflict], "removal of one in use")?;
    ensure!(templates.get(&id).await?.is_some(), "it is gone all the same");
    ensure_eq!(sandbox.files().read(&at("/home/user/marker")?).await?, "captured", "the sandbox's file");
    Ok(())
}

async fn outlives_its_sandbox(bed: &Bed<'_>) -> Checked {
    part(bed.provider())?;
    let (id, source) = (bed.template()?, bed.fresh().await?);
    commit(bed, &*source, &id, "captured").await?;
    bed.provider().destroy(source.id()).await?;
    let sandbox = bed.create(bed.options()?.with_template(id)).await?;
    ensure_eq!(sandbox.files().read(&at("/home/user/marker")?).await?, "captured", "the marker");
    Ok(())
}

async fn failed_lookup_is_an_error(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let templates = part(faulty.provider())?;
    let id = TemplateId::new("none")?;
    faulty.arm(Fault::Templates)?;
    ensure!(templates.get(&id).await.is_err(), "a lookup that failed answered");
    faulty.arm(Fault::Templates)?;
    ensure!(templates.list("").await.is_err(), "a listing that failed answered");
    faulty.arm(Fault::Templates)?;
    ensure!(templates.remove(&id).await.is_err(), "a removal that failed answered");
    Ok(())
}
