use std::collections::BTreeMap;

use sandbar_core::{IdMapping, Result, SandboxId, Template, TemplateId, UserName};

use super::part::{built_in, public};
use crate::home::Home;
use crate::provider::LocalProvider;
use crate::store::{LayerDocument, StoreIds, TemplateDefaults, TemplateDocument};
use crate::template;

/// A template with what it is made of, and what it has for sandboxes that say nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateDetails {
    /// As the contract shows it.
    pub template: Template,
    /// Where it came from, for people; nothing of the built-in one.
    pub source: Option<String>,
    /// Whether it lies over this machine's own programs.
    pub over_host: bool,
    /// What it is made of, the topmost first.
    pub layers: Vec<TemplateLayer>,
    /// Whose its files are on disk: it serves sandboxes of this kind. Nothing where it has no layers.
    pub ids: Option<IdMapping>,
    /// Environment of every command, below the sandbox' own.
    pub env: BTreeMap<String, String>,
    /// Where commands begin; the user's home if absent.
    pub workdir: Option<String>,
    /// Who runs commands; `user` if absent.
    pub user: Option<UserName>,
    /// The main command of a sandbox that is given none: program and arguments.
    pub start: Vec<String>,
    /// What a creation waits for: program and arguments.
    pub ready: Vec<String>,
    /// Sandboxes that boot from it, asleep and stopped ones included; `None` where that can't be found out: then it counts as in use.
    pub used_by: Option<Vec<SandboxId>>,
}

/// A layer of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateLayer {
    /// Its name, by its content.
    pub id: String,
    /// Bytes of its files; `None` where nobody counted them, or it is gone.
    pub size_bytes: Option<u64>,
}

impl LocalProvider {
    /// All that is known of a template; `None` means that it positively does not exist.
    pub async fn describe_template(&self, id: &TemplateId) -> Result<Option<TemplateDetails>> {
        let id = id.clone();
        let work = move |inner: &crate::provider::Inner| {
            let home = Home::open(&inner.home)?;
            if id.as_str() == template::HOST {
                return Ok(Some(of_host(home.as_ref())));
            }
            let Some(home) = home else { return Ok(None) };
            TemplateDocument::read(&home, &id)?.map(|document| details(&home, document)).transpose()
        };
        self.templates.aside("show template", work).await
    }
}

fn of_host(home: Option<&Home>) -> TemplateDetails {
    let template = built_in(home);
    TemplateDetails {
        used_by: home.map_or(Some(Vec::new()), |home| home.users_of_template(&template.id).ok()),
        template,
        source: None,
        over_host: true,
        layers: Vec::new(),
        ids: None,
        env: BTreeMap::new(),
        workdir: None,
        user: None,
        start: Vec::new(),
        ready: Vec::new(),
    }
}

fn details(home: &Home, document: TemplateDocument) -> Result<TemplateDetails> {
    let mut ids = None;
    let mut layers = Vec::with_capacity(document.layers.len());
    for id in &document.layers {
        let of = LayerDocument::read(home, id)?;
        ids = ids.or_else(|| of.as_ref().map(|of| mapping(&of.ids)));
        layers
            .push(TemplateLayer { id: id.as_str().to_owned(), size_bytes: of.and_then(|of| of.size_bytes) });
    }
    let TemplateDefaults { env, workdir, user, start, ready } = document.defaults.clone();
    Ok(TemplateDetails {
        source: Some(document.origin.clone()),
        over_host: document.on_host,
        used_by: home.users_of_template(&document.id).ok(),
        template: public(home, document),
        layers,
        ids,
        env,
        workdir,
        user,
        start,
        ready,
    })
}

fn mapping(ids: &StoreIds) -> IdMapping {
    match ids {
        StoreIds::Range { .. } => IdMapping::Range,
        StoreIds::Subordinate { .. } => IdMapping::Subordinate,
        StoreIds::Single => IdMapping::Single,
    }
}
