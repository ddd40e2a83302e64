//! What a caller asks for, taken apart: each field is honoured or refused here, before any effect.

use std::collections::BTreeSet;
use std::time::Duration;

use sandbar_core::{
    Base, CreateOptions, DeadlineAction, EnvVars, GuestPath, ProviderExt as _, VolumeMount, VolumeName,
};
use sandbar_wire::e2b::{NetworkConfig, NewSandbox};

use super::egress::Egress;
use super::seconds;
use crate::app::App;
use crate::control::templates::ResolvedTemplate;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::tenant::Tenant;

/// Longest `maskRequestHost`, in bytes: a host name, a port, and the word that stands for one.
const MAX_MASK_HOST: usize = 253 + 8;

/// The port of the guest's own API, which is never the caller's.
const GUEST_PORT: u16 = 49_983;

/// Which form of E2B's API was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// `/sandboxes`
    First,
    /// `/v2/sandboxes`
    Second,
}

/// What is to be made, as far as it can be told without the template.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) options: CreateOptions,
    pub(super) marks: Marks,
    env: EnvVars,
}

impl Plan {
    /// Reads what was asked for. Nothing is looked up but the volumes.
    pub(super) async fn of(
        app: &App,
        tenant: &Tenant,
        asked: &NewSandbox,
        generation: Generation,
    ) -> ApiResult<Self> {
        let NewSandbox {
            template_id: _,
            timeout,
            auto_pause,
            auto_pause_memory,
            auto_resume,
            secure,
            allow_internet_access,
            network,
            metadata: _,
            env_vars,
            // The SDK itself starts the gateway, by a command, and says if there is none.
            mcp: _,
            iam,
            volume_mounts,
        } = asked;
        let (default, is_secure) = match generation {
            Generation::First => (seconds::OLD_DEFAULT_TIMEOUT, *secure == Some(true)),
            Generation::Second => (seconds::DEFAULT_TIMEOUT, true),
        };
        let timeout = seconds::positive(*timeout, default, app.config.limits.longest_timeout)?;
        let pauses = *auto_pause == Some(true);
        let resumes = auto_resume.is_some_and(|resume| resume.enabled);
        check_pause_memory(*auto_pause_memory, pauses, resumes)?;
        check_iam(iam.as_ref())?;
        let network = network.as_ref();
        let is_private = network.and_then(|network| network.allow_public_traffic) == Some(false);
        if is_private && !is_secure {
            return Err(ApiError::bad_request(
                "allowPublicTraffic can't be false for a sandbox that is not secure: set secure to true",
            ));
        }
        let mask_host = mask_host(network)?;
        check_https_ports(network)?;
        let egress = Egress::of_config(network, *allow_internet_access).policy(app.config.default_egress)?;
        let mut env = EnvVars::new();
        for (name, value) in env_vars.iter().flatten() {
            env.insert(name, value)?;
        }
        let mut options = CreateOptions::new()
            .with_egress(egress)
            .with_deadline(Duration::from_secs(timeout))
            .with_on_deadline(if pauses { DeadlineAction::Pause } else { DeadlineAction::Destroy });
        options.volumes = volumes(app, tenant, volume_mounts.as_deref().unwrap_or_default()).await?;
        let marks = Marks {
            tenant: tenant.id.clone(),
            is_secure,
            auto_resume: resumes,
            is_private,
            mask_host,
            timeout,
            ..Marks::default()
        };
        Ok(Self { options, marks, env })
    }

    /// With what the template says.
    pub(super) fn with_template(
        mut self,
        template: &ResolvedTemplate,
        asked: &NewSandbox,
    ) -> ApiResult<Self> {
        self.marks.template.clone_from(&template.id);
        self.marks.alias.clone_from(&template.alias);
        let mut env = EnvVars::new();
        let own = [("E2B_SANDBOX", "true"), ("E2B_TEMPLATE_ID", template.id.as_str())];
        for (name, value) in own.into_iter().chain(self.env.iter()) {
            env.insert(name, value)?;
        }
        self.options.env = env;
        if let Some(id) = &template.provider {
            self.options.base = Base::Template(id.clone());
        }
        self.options.resources = template.resources;
        // Looked at once more by `to_labels` with the rest of the marks, which come later.
        self.marks.to_labels(&asked.metadata.clone().unwrap_or_default())?;
        Ok(self)
    }
}

fn check_pause_memory(memory: Option<bool>, pauses: bool, resumes: bool) -> ApiResult<()> {
    if memory != Some(false) {
        return Ok(());
    }
    let why = if !pauses {
        "autoPauseMemory can only be false with autoPause"
    } else if resumes {
        "autoPauseMemory can't be false with autoResume: only what kept its memory is resumed by a request"
    } else {
        NO_FILES_ONLY_PAUSE
    };
    Err(ApiError::bad_request(why))
}

/// Why a pause without memory is refused.
pub(super) const NO_FILES_ONLY_PAUSE: &str =
    "a pause that keeps files only is not available here: leave memory out, or set it to true";

fn check_iam(iam: Option<&serde_json::Value>) -> ApiResult<()> {
    let is_empty = match iam {
        None | Some(serde_json::Value::Null) => true,
        Some(serde_json::Value::Object(fields)) => fields.values().all(|value| match value {
            serde_json::Value::Null => true,
            serde_json::Value::Object(tokens) => tokens.is_empty(),
            _ => false,
        }),
        Some(_) => false,
    };
    if is_empty {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "iam is not available here: there are no identity tokens; give the sandbox a credential by envVars instead",
    ))
}

fn mask_host(network: Option<&NetworkConfig>) -> ApiResult<Option<String>> {
    let Some(mask) = network.and_then(|network| network.mask_request_host.as_deref()) else {
        return Ok(None);
    };
    let plain = mask.replace("${PORT}", "1");
    let (host, port) = match plain.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (plain.as_str(), None),
    };
    let is_host = !host.is_empty()
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && mask.len() <= MAX_MASK_HOST;
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port != 0));
    if is_host && is_port {
        Ok(Some(mask.to_owned()))
    } else {
        Err(ApiError::bad_request(
            "maskRequestHost is not valid: expected a host name with or without a port, where ${PORT} stands for the port",
        ))
    }
}

fn check_https_ports(network: Option<&NetworkConfig>) -> ApiResult<()> {
    let ports = network.and_then(|network| network.https_ports.as_deref()).unwrap_or_default();
    if ports.contains(&GUEST_PORT) {
        return Err(ApiError::bad_request(format!(
            "httpsPorts can't hold {GUEST_PORT}: it is the sandbox' own"
        )));
    }
    if ports.is_empty() {
        return Ok(());
    }
    Err(ApiError::bad_request(
        "httpsPorts is not available here: requests reach ports in clear; let the service listen without TLS",
    ))
}

async fn volumes(
    app: &App,
    tenant: &Tenant,
    asked: &[sandbar_wire::e2b::VolumeMount],
) -> ApiResult<Vec<VolumeMount>> {
    let mut paths = BTreeSet::new();
    let mut mounts = Vec::new();
    for mount in asked {
        let path = &mount.path;
        let is_clean = path.len() > 1
            && path.starts_with('/')
            && path[1..].split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !is_clean {
            return Err(ApiError::bad_request(format!(
                "volume mount path \"{path}\" is not valid: expected an absolute path without \".\", \"..\", \"//\" or a \"/\" at its end"
            )));
        }
        if !paths.insert(path) {
            return Err(ApiError::bad_request(format!("two volume mounts have the path \"{path}\"")));
        }
        let unknown = || ApiError::not_found(format!("Volume '{}' not found", mount.name));
        let volume = VolumeName::new(format!("{}-{}", tenant.id, mount.name)).map_err(|_| unknown())?;
        if !app.provider.require_volumes()?.exists(&volume).await? {
            return Err(unknown());
        }
        mounts.push(VolumeMount { volume, path: GuestPath::new(path)? });
    }
    Ok(mounts)
}
