//! What a caller asks for, taken apart: each field is honoured or refused here, before anything is sent.

use std::time::Duration;

use sandbar_core::{Base, CreateOptions, DeadlineAction, Error, Lifetime, LimitDemand, Result, SandboxName};
use sandbar_wire::e2b::{Metadata, NewSandbox, VolumeMount};

use crate::E2bConfig;
use crate::config::BACKEND;
use crate::lease::LEASE;
use crate::marks::{self, Marks};
use crate::network::words;
use crate::record::isolation;

/// A creation.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: Option<SandboxName>,
    /// How long it may live.
    pub(crate) lifetime: Duration,
    pub(crate) owner: Lifetime,
    marks: Marks,
    asked: NewSandbox,
}

impl Plan {
    /// The request, whose result is told from others by `creation`.
    pub(crate) fn request(&self, creation: &str) -> NewSandbox {
        let marks = Marks { creation: Some(creation.to_owned()), ..self.marks.clone() };
        NewSandbox { metadata: Some(marks.to_metadata()), ..self.asked.clone() }
    }

    /// Takes the options apart.
    pub(crate) fn of(config: &E2bConfig, options: CreateOptions) -> Result<Self> {
        options.check().map_err(|error| error.with_backend(BACKEND))?;
        let CreateOptions {
            project,
            name,
            base,
            env,
            // Checked by its type. It goes nowhere.
            self_delivered_env: _,
            labels,
            main,
            ports,
            volumes,
            host_mounts,
            resources,
            limit_demand,
            egress,
            deadline,
            on_deadline,
            min_isolation,
            lifetime: owner,
        } = options;
        let template = match base {
            Base::Default => config.template().to_owned(),
            Base::Template(id) => id.to_string(),
            Base::Image(image) => {
                let why = format!("E2B boots from templates; build one from `{image}` first");
                return Err(refused("image", &why));
            }
        };
        if main.is_some() {
            let why = "E2B starts what a template says; spawn the command once the sandbox is there";
            return Err(refused("main command", why));
        }
        if !ports.is_empty() {
            let why = "every port of a sandbox has an address of its own; ask for its preview URL";
            return Err(refused("published ports", why));
        }
        if !host_mounts.is_empty() {
            return Err(refused("host mounts", "the sandbox is on another machine; import the files"));
        }
        if !resources.is_empty() {
            return Err(refused("limits of a sandbox", "E2B's templates say what a sandbox gets"));
        }
        if limit_demand == LimitDemand::Enforced {
            return Err(refused("enforced limits", "E2B does not tell of a limit on processes"));
        }
        if min_isolation > isolation(config) {
            let why = "E2B's API does not say how this server isolates";
            let why = if config.is_e2b_itself() { "E2B's sandboxes are microVMs" } else { why };
            return Err(refused("this isolation", why));
        }
        if owner == Lifetime::Owned && on_deadline == DeadlineAction::Pause {
            return Err(refused("an owned sandbox that sleeps", "it has to end with its maker"));
        }
        marks::check(&labels)?;
        let words = words("create", &egress.unwrap_or_else(|| config.egress()))?;
        let lifetime = deadline.unwrap_or_else(|| config.lifetime());
        let marks = Marks {
            is_ours: true,
            project,
            name: name.clone(),
            labels,
            on_deadline: Some(on_deadline),
            lifetime: Some(whole(lifetime)),
            has_volumes: !volumes.is_empty(),
            creation: None,
        };
        let mounts = volumes.into_iter().map(|mount| {
            let path = mount.path.to_str().map(str::to_owned).ok_or_else(|| {
                refused(&format!("mount path `{}`", mount.path), "E2B's API takes paths that are text")
            })?;
            Ok(VolumeMount { name: mount.volume.to_string(), path })
        });
        let mounts: Vec<_> = mounts.collect::<Result<_>>()?;
        let pauses = on_deadline == DeadlineAction::Pause;
        let first = if owner == Lifetime::Owned { lifetime.min(LEASE) } else { lifetime };
        let asked = NewSandbox {
            template_id: template,
            timeout: Some(i64::try_from(whole(first).as_secs()).unwrap_or(i64::MAX)),
            auto_pause: Some(pauses),
            auto_pause_memory: pauses.then_some(true),
            allow_internet_access: words.internet(),
            network: words.config(),
            metadata: Some(Metadata::new()),
            env_vars: Some(env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()),
            volume_mounts: (!mounts.is_empty()).then_some(mounts),
            ..NewSandbox::default()
        };
        Ok(Self { name, lifetime, owner, marks, asked })
    }
}

fn refused(feature: &str, why: &str) -> Error {
    Error::unsupported("create", feature, why).with_backend(BACKEND)
}

/// In whole seconds, as E2B counts, and no fewer.
pub(crate) fn whole(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)))
}

#[cfg(test)]
mod tests;
