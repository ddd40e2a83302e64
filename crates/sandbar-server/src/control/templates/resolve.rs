use sandbar_core::{Resources, TemplateId};

use super::name::Reference;
use crate::app::App;
use crate::builtin::Builtin;
use crate::error::{ApiError, ApiResult};
use crate::tenant::Tenant;

/// Ids of the provider's templates that are tenants' begin so: the operator's don't.
pub(crate) const TENANT_PREFIX: &str = "srv-";

/// What a sandbox is to be made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResolvedTemplate {
    /// The provider's template; `None` is the backend's default.
    pub(crate) provider: Option<TemplateId>,
    /// Its id, as answers name it.
    pub(crate) id: String,
    /// Its name, if it has one.
    pub(crate) alias: Option<String>,
    /// Limits that it was registered with.
    pub(crate) resources: Resources,
}

impl App {
    /// What `name` means to the tenant: one of its own templates or snapshots, by name or id, with a tag or without; else a built-in one; else one of the
    /// operator's. One that does not exist and one of somebody else are the same answer.
    pub(crate) async fn resolve_template(&self, tenant: &Tenant, name: &str) -> ApiResult<ResolvedTemplate> {
        let mut unbuilt = None;
        if let Ok(reference) = Reference::parse(name) {
            if let Some(found) = self.store.find_template(&tenant.id, &reference).await? {
                if let Some(build) = found.build {
                    return Ok(ResolvedTemplate {
                        provider: Some(TemplateId::new(build.provider)?),
                        id: found.template.id,
                        alias: found.template.name,
                        resources: Resources {
                            cpu_millis: build.cpu_count.map(|count| count.saturating_mul(1000)),
                            memory_bytes: build.memory_mb.map(|mb| mb.saturating_mul(1 << 20)),
                            ..Resources::default()
                        },
                    });
                }
                // It hides nothing of the same name until it is built: it may be built from that.
                unbuilt = Some(ApiError::not_found(format!(
                    "template '{}' has no build with the tag '{}': build it first, or name a tag that it has",
                    found.template.name.unwrap_or(found.template.id),
                    reference.tag_or_default()
                )));
            }
            if let Some(builtin) = built_in(&reference) {
                return Ok(ResolvedTemplate {
                    provider: self.builtins.template(builtin).await?,
                    id: builtin.name().to_owned(),
                    alias: Some(builtin.name().to_owned()),
                    ..ResolvedTemplate::default()
                });
            }
        }
        match self.operator_template(name).await? {
            Some(found) => Ok(found),
            None => Err(unbuilt.unwrap_or_else(|| ApiError::no_template(name))),
        }
    }

    /// Whether a name is that of a template of everybody's.
    pub(super) async fn is_shared(&self, name: &str) -> ApiResult<bool> {
        let is_built_in = Reference::parse(name).is_ok_and(|reference| built_in(&reference).is_some());
        Ok(is_built_in || self.operator_template(name).await?.is_some())
    }

    /// A template that the operator made, by the id that it was given; `:default` is no part of it.
    pub(super) async fn operator_template(&self, name: &str) -> ApiResult<Option<ResolvedTemplate>> {
        let Some(templates) = self.provider.templates() else { return Ok(None) };
        let name = name.trim();
        let plain = name.strip_suffix(":default").unwrap_or(name);
        for candidate in [name, plain] {
            let Ok(id) = TemplateId::new(candidate) else { continue };
            if id.as_str().starts_with(TENANT_PREFIX) {
                continue;
            }
            if templates.get(&id).await?.is_some() {
                return Ok(Some(ResolvedTemplate {
                    id: id.as_str().to_owned(),
                    alias: Some(id.as_str().to_owned()),
                    provider: Some(id),
                    ..ResolvedTemplate::default()
                }));
            }
        }
        Ok(None)
    }
}

/// What the server has of its own.
fn built_in(reference: &Reference) -> Option<Builtin> {
    let is_plain = reference.namespace.is_none() && reference.tag_or_default() == super::name::DEFAULT_TAG;
    Builtin::named(&reference.name).filter(|_| is_plain)
}

impl ApiError {
    /// What every unknown and every foreign template answers.
    pub(crate) fn no_template(name: &str) -> Self {
        Self::not_found(format!(
            "template '{}' doesn't exist or you don't have access to it",
            super::name::shown(name)
        ))
    }
}
