use std::time::Duration;

use sandbar::{
    Base, CreateOptions, DeadlineAction, EnvVars, HostMount, Labels, Lifetime, LimitDemand, Resources,
};

use crate::args::{CreationArgs, LimitArgs};
use crate::failure::{Failure, Result};
use crate::settings::{absolute, policy};
use crate::value::Pair;

/// How long a sandbox of `run` may live where nobody says: it ends with this process, so a backend's own default, meant for sandboxes that
/// were forgotten, would only cut long commands short.
const OWNED_DEADLINE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Checks as much as can be known without a backend: what is refused here is usage.
pub(super) fn resolve(args: CreationArgs, env: EnvVars, lifetime: Lifetime) -> Result<CreateOptions> {
    let CreationArgs {
        template,
        name,
        labels: label_args,
        project,
        limits,
        require_enforced_limits,
        mounts,
        volumes,
        ports,
        deadline,
        on_timeout,
        policy: policy_args,
    } = args;
    let host_mounts = mounts
        .into_iter()
        .map(|mount| {
            let source = absolute(&mount.source)?;
            if let Err(error) = source.metadata() {
                let what = format!("`{}` can't be mounted: {error}", source.display());
                return Err(Failure::usage(sandbar::Error::invalid("parse --mount", what)));
            }
            Ok(HostMount { source, target: mount.target, access: mount.access })
        })
        .collect::<Result<_>>()?;
    let owned = (lifetime == Lifetime::Owned).then_some(OWNED_DEADLINE);
    let options = CreateOptions {
        name,
        project,
        base: template.map_or(Base::Default, Base::Template),
        env,
        labels: labels(label_args)?,
        ports: ports.into_iter().map(|port| port.0).collect(),
        volumes: volumes.into_iter().map(|volume| volume.0).collect(),
        host_mounts,
        resources: limited(limits),
        limit_demand: if require_enforced_limits { LimitDemand::Enforced } else { LimitDemand::BestEffort },
        deadline: deadline.map(|duration| duration.0).or(owned),
        on_deadline: on_timeout.map_or(DeadlineAction::Destroy, |action| action.0),
        lifetime,
        egress: policy::resolve(policy_args)?,
        ..CreateOptions::new()
    };
    options.check().map_err(Failure::usage)?;
    Ok(options)
}

/// What is typed of limits, as the contract has it.
pub(super) fn limited(args: LimitArgs) -> Resources {
    let LimitArgs { memory, cpus, pids, disk } = args;
    Resources {
        memory_bytes: memory.map(|size| size.0),
        cpu_millis: cpus.map(|cpus| cpus.0),
        pids: pids.map(|pids| pids.0),
        disk_bytes: disk.map(|size| size.0),
    }
}

pub(super) fn labels(pairs: Vec<Pair>) -> Result<Labels> {
    let mut labels = Labels::new();
    for pair in pairs {
        labels.insert(pair.key, pair.value).map_err(Failure::usage)?;
    }
    Ok(labels)
}
