use super::build::{Building, c, nofile};
use super::counted::counted;
use super::step::{Limited, Step};
use crate::capabilities;
use crate::error::Error;
use crate::handover::AGENT_PATH;
use crate::host::{Host, UserCounts};
use crate::ids::{IdMode, USER_ID};
use crate::limits::Enforcement;
use crate::spec::Spec;

/// From the moment the host is out of reach to the agent.
pub(super) fn add(
    spec: &Spec<'_>,
    host: &Host,
    pids: Enforcement,
    out: &mut Building<'_>,
) -> Result<(), Error> {
    out.push(Step::LastSetting { value: c("0")? });
    out.push(Step::LeaveHost);
    // The host name is the launch's word, not that of an earlier one.
    out.push(Step::OwnFile { path: c("/etc/hostname")?, bytes: format!("{}\n", spec.hostname).into_bytes() });
    if spec.ids.has_root() {
        out.push(Step::OwnFolder { path: c("/home/user")?, uid: USER_ID, gid: USER_ID });
    }

    limit(out, Limited::OpenFiles, nofile(spec, host));
    limit(out, Limited::CoreSize, 0);
    // What a user of the host was given of these would let a sandbox starve every other process of the host.
    limit(out, Limited::RealTime, 0);
    limit(out, Limited::Nice, 0);
    let UserCounts { signals, message_bytes, locked_bytes } = counted(&spec.ids, host).of_each;
    for (resource, count) in [
        (Limited::PendingSignals, signals),
        (Limited::MessageBytes, message_bytes),
        (Limited::LockedBytes, locked_bytes),
    ] {
        if let Some(count) = count {
            limit(out, resource, count);
        }
    }
    if let Some(bytes) = spec.limits.disk_bytes {
        limit(out, Limited::FileSize, bytes);
    }
    let counted_by_group = spec.cgroup.is_some_and(|group| group.enforced()[2] == Enforcement::Enforced);
    if let (Some(limited), false) = (spec.limits.pids, counted_by_group) {
        debug_assert_ne!(pids, Enforcement::None);
        limit(out, Limited::Processes, u64::from(limited));
    }

    out.push(Step::Descriptors);
    let keep = if spec.ids.has_root() { capabilities::mask(capabilities::SANDBOX_ROOT) } else { 0 };
    out.push(Step::DropCapabilities { keep });
    out.push(Step::NoNewPrivileges);
    // With ids of its own, a sandbox that got hold of a host file could do little with it; with the caller's id it is
    // the caller. So there a second wall stands.
    if spec.ids == IdMode::Single && host.landlock_abi > 0 {
        out.push(Step::Landlock { abi: host.landlock_abi });
    }
    out.push(Step::Filter);
    out.push(Step::Execute(c(AGENT_PATH)?));
    Ok(())
}

fn limit(out: &mut Building<'_>, resource: Limited, value: u64) {
    out.push(Step::Limit { resource, value });
}
