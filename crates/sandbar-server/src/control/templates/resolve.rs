use std::collections::BTreeMap;

use sandbar_core::{Resources, TemplateId};

use crate::app::App;
use crate::builtin::Builtin;
use crate::error::{ApiError, ApiResult};
use crate::tenant::Tenant;

/// What a template's name stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvedTemplate {
    /// The provider's template; `None` is the backend's default.
    pub(crate) provider: Option<TemplateId>,
    /// The id that answers have.
    pub(crate) id: String,
    /// A name that answers have.
    pub(crate) alias: Option<String>,
    /// What a shell runs as the main command.
    pub(crate) start: Option<String>,
    /// What a shell runs until it succeeds, before the sandbox counts as made.
    pub(crate) ready: Option<String>,
    /// Environment of its commands.
    pub(crate) env: BTreeMap<String, String>,
    /// Limits that it was registered with.
    pub(crate) resources: Resources,
}

impl App {
    /// What `name`, an id or a name with or without a tag, is for this tenant. One that is not there and another's answer the same.
    pub(crate) async fn resolve_template(&self, _tenant: &Tenant, name: &str) -> ApiResult<ResolvedTemplate> {
        let unknown = || ApiError::not_found(format!("template '{name}' not found"));
        if let Some(builtin) = Builtin::named(name) {
            return Ok(ResolvedTemplate {
                provider: self.builtins.template(builtin).await?,
                id: name.to_owned(),
                alias: Some(name.to_owned()),
                ..ResolvedTemplate::default()
            });
        }
        let Ok(id) = TemplateId::new(name) else { return Err(unknown()) };
        let Some(templates) = self.provider.templates() else { return Err(unknown()) };
        match templates.get(&id).await? {
            Some(_) if !name.starts_with("srv-") => Ok(ResolvedTemplate {
                provider: Some(id),
                id: name.to_owned(),
                alias: Some(name.to_owned()),
                ..ResolvedTemplate::default()
            }),
            _ => Err(unknown()),
        }
    }
}
