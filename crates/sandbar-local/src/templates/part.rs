use std::sync::Arc;

use async_trait::async_trait;
use sandbar_core::{CommitOptions, ErrorKind, Result, Template, TemplateId, Templates};
use sha2::{Digest as _, Sha256};

use crate::aside::aside;
use crate::capture;
use crate::error::fail;
use crate::home::Home;
use crate::provider::Inner;
use crate::store::{Hold, StoreLock, TemplateDocument, sweep_layers};
use crate::template::{self, Base};
use crate::worker::hex;

/// Layers that the removal of a template takes away at once: more than a template has. What is left, a later command removes.
const LAYERS_REMOVED: usize = 64;

/// The templates part, a type of its own: on the provider its methods would be taken for the provider's.
#[derive(Clone, Debug)]
pub(crate) struct LocalTemplates {
    pub(crate) inner: Arc<Inner>,
}

#[async_trait]
impl Templates for LocalTemplates {
    async fn commit(&self, options: CommitOptions) -> Result<Template> {
        let document = capture::commit(&self.inner, options).await?;
        self.aside("commit", move |inner| Ok(public(&Home::ensure(&inner.home)?, document))).await
    }

    async fn get(&self, id: &TemplateId) -> Result<Option<Template>> {
        let id = id.clone();
        self.aside("get template", move |inner| {
            if id.as_str() == template::HOST {
                return Ok(Some(built_in(Home::open(&inner.home)?.as_ref())));
            }
            let Some(home) = Home::open(&inner.home)? else { return Ok(None) };
            Ok(TemplateDocument::read(&home, &id)?.map(|document| public(&home, document)))
        })
        .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Template>> {
        let prefix = prefix.to_owned();
        self.aside("list templates", move |inner| {
            let home = Home::open(&inner.home)?;
            let mut all = Vec::new();
            if template::HOST.starts_with(prefix.as_str()) {
                all.push(built_in(home.as_ref()));
            }
            let Some(home) = home else { return Ok(all) };
            for id in home.templates()?.into_iter().filter(|id| id.as_str().starts_with(prefix.as_str())) {
                // One that can't be read is an error: without it the list would be short.
                if let Some(document) = TemplateDocument::read(&home, &id)? {
                    all.push(public(&home, document));
                }
            }
            all.sort_by(|one, other| one.id.cmp(&other.id));
            Ok(all)
        })
        .await
    }

    async fn remove(&self, id: &TemplateId) -> Result<bool> {
        let id = id.clone();
        self.aside("remove template", move |inner| remove(inner, &id)).await
    }
}

impl LocalTemplates {
    /// Work that blocks.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        aside(operation, move || work(&inner)).await
    }
}

fn remove(inner: &Inner, id: &TemplateId) -> Result<bool> {
    const OPERATION: &str = "remove template";
    if id.as_str() == template::HOST {
        let why = format!("`{id}` is the built-in template");
        return Err(fail(ErrorKind::Conflict, OPERATION, why)
            .with_hint("it takes no room worth speaking of: it is made of this machine's own programs"));
    }
    let Some(home) = Home::open(&inner.home)? else { return Ok(false) };
    let lock = StoreLock::take(&home, Hold::Alone, OPERATION)?;
    // A record that can't be read may be of a sandbox of this template: then this is an error, and it stays.
    let users = home.users_of_template(id)?;
    if let Some(first) = users.first() {
        let others = match users.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let why = format!("template `{id}` is in use by sandbox `{first}`{others}");
        return Err(fail(ErrorKind::Conflict, OPERATION, why)
            .with_resource(format!("template `{id}`"))
            .with_hint("destroy the sandboxes made from it first"));
    }
    let was_there = TemplateDocument::unpublish(&home, id, &lock)?;
    // The template is gone; what can't be removed of its layers now, a later command removes.
    let _ = home.remove_unused_layers(&lock, LAYERS_REMOVED);
    drop(lock);
    let _ = sweep_layers(&home, LAYERS_REMOVED);
    Ok(was_there)
}

/// A template as the contract shows it. What can't be looked at is in use.
pub(crate) fn public(home: &Home, document: TemplateDocument) -> Template {
    let in_use = home.users_of_template(&document.id).map_or(true, |users| !users.is_empty());
    Template {
        reference: reference(&document),
        created_at: Some(document.created_at),
        size_bytes: document.size_bytes,
        label: document.label,
        in_use,
        id: document.id,
    }
}

/// A digest over all that its sandboxes boot from.
fn reference(document: &TemplateDocument) -> String {
    let mut hash = Sha256::new();
    if document.on_host {
        // Programs that can't be looked at are none that anybody knows.
        hash.update(Base::observe().map_or_else(|_| String::new(), |base| base.fingerprint));
    }
    for layer in &document.layers {
        hash.update([0]);
        hash.update(layer.as_str());
    }
    format!("local:sha256:{}", hex(hash))
}

pub(super) fn built_in(home: Option<&Home>) -> Template {
    let id = template::host_id();
    let in_use = home.is_some_and(|home| home.users_of_template(&id).map_or(true, |users| !users.is_empty()));
    Template {
        reference: Base::observe()
            .map_or_else(|_| "host:".to_owned(), |base| format!("host:{}", base.fingerprint)),
        created_at: None,
        size_bytes: None,
        label: Some("this machine's own programs".to_owned()),
        in_use,
        id,
    }
}
