use std::ffi::{CStr, CString};

use super::base::SAFE;
use super::build::{Building, c};
use super::step::{Bind, Presence, Source, Step, Target};
use super::{ipc, network};
use crate::error::Error;
use crate::host::{Host, Inotify};
use crate::ids::IdMode;
use crate::limits::{DEFAULT_INOTIFY_INSTANCES, DEFAULT_INOTIFY_WATCHES, MAX_TERMINALS, SHARE_OF_USER};
use crate::random;
use crate::spec::Spec;
use crate::sys::{ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY};

/// Files of `/proc` that tell of the host or of the kernel's inside; each reads as empty.
const MASKED_FILES: &[&str] = &[
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "timer_list",
    "timer_stats",
    "sched_debug",
    "sysrq-trigger",
    "interrupts",
    "softirqs",
    "diskstats",
    "partitions",
    "kmsg",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "latency_stats",
    "iomem",
    "ioports",
    "modules",
    "mtrr",
    "swaps",
    "slabinfo",
    "vmallocinfo",
    "zoneinfo",
    "pagetypeinfo",
    "buddyinfo",
    "schedstat",
    "locks",
    "cmdline",
    "config.gz",
];

/// Folders of `/proc` that read as empty.
const MASKED_FOLDERS: &[&str] = &["acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "scsi"];

/// Counts of the user namespace that are set to 0 once the sandbox's own namespaces are there: a second wall behind the
/// system call filter.
const NO_MORE: &[&str] = &[
    "max_cgroup_namespaces",
    "max_ipc_namespaces",
    "max_net_namespaces",
    "max_pid_namespaces",
    "max_time_namespaces",
    "max_user_namespaces",
    "max_uts_namespaces",
    "max_fanotify_groups",
    "max_fanotify_marks",
];

/// Devices that hold nothing of the host's.
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Sizes of file systems in memory. Where no memory limit counts them, these bound them; `/dev/shm` is what browsers
/// and data bases need at most.
const DEV_BYTES: &CStr = c"65536";
const RUN_BYTES: &CStr = c"16777216";
const SHM_BYTES: &CStr = c"268435456";
const SMALL_BYTES: &CStr = c"1048576";

/// A mount taken from another one of ours has the other's attributes already.
const INHERITED: u64 = 0;

/// The group `tty` of every distribution.
const TTY_GROUP: &CStr = c"5";

/// Everything that is not on disk: `/proc`, `/sys`, `/dev`, `/run`.
pub(super) fn add(spec: &Spec<'_>, host: &Host, out: &mut Building<'_>) -> Result<(), Error> {
    proc(spec, host, out)?;
    sys(out)?;
    dev(spec, out)?;
    memory(out, RUN_BYTES, c"755", SAFE, "/new/run")?;
    dir(out, "/new/run/lock", 0o1777)?;
    dir(out, "/new/run/sandbar", 0o755)
}

fn proc(spec: &Spec<'_>, host: &Host, out: &mut Building<'_>) -> Result<(), Error> {
    let attrs = SAFE | ATTR_NOEXEC;
    out.push(Step::Mount {
        kind: c"proc",
        options: vec![(c"source", Some(c"proc".into()))],
        attrs,
        target: c"/new/proc".into(),
    });
    let Inotify { instances, watches } = inotify(spec, host);
    setting(out, "max_inotify_watches", &watches.to_string())?;
    setting(out, "max_inotify_instances", &instances.to_string())?;
    for name in NO_MORE {
        setting(out, name, "0")?;
    }

    for (name, value) in network::settings(spec.network) {
        // Where a kernel has no such setting, its memory is used for longer.
        let path = c(format!("/new/proc/sys/net/netfilter/{name}"))?;
        out.push(Step::SettingIfMay { path, value: c(value)? });
    }

    ipc::add(spec.limits.memory_bytes, out)?;

    // Every mount that is not attached yet counts as a mount namespace, so this one is set after the last mount; by then
    // the file is read-only.
    out.push(Step::HoldSetting { path: c("/new/proc/sys/user/max_mnt_namespaces")? });

    memory(out, SMALL_BYTES, c"755", attrs, "/m")?;
    dir(out, "/m/none", 0o555)?;
    out.push(Step::File { path: c"/m/empty".into(), mode: 0o444, bytes: Vec::new() });
    let boot_id = format!("{}\n", random::uuid()?);
    out.push(Step::File { path: c"/m/boot_id".into(), mode: 0o444, bytes: boot_id.into_bytes() });
    let hidden = SAFE | ATTR_NOEXEC | ATTR_RDONLY;
    // What is taken from it has these attributes by that, without a call for each.
    out.push(Step::Restrict { path: c"/m".into(), attrs: hidden });
    let cover = |source: &CStr, target: String, presence| {
        Ok(Step::Bind(Bind {
            source: Source::Path(source.to_owned()),
            attrs: if source == c"/new/proc/sys" { hidden } else { INHERITED },
            target: Target::Exact(c(target)?),
            presence,
        }))
    };
    out.push(cover(c"/new/proc/sys", "/new/proc/sys".into(), Presence::Required)?);
    out.push(cover(c"/m/boot_id", "/new/proc/sys/kernel/random/boot_id".into(), Presence::IfPresent)?);
    for name in MASKED_FILES {
        out.push(cover(c"/m/empty", format!("/new/proc/{name}"), Presence::IfPresent)?);
    }
    for name in MASKED_FOLDERS {
        out.push(cover(c"/m/none", format!("/new/proc/{name}"), Presence::IfPresent)?);
    }
    Ok(())
}

/// What the sandbox gets of inotify, which is never more than the kernel gives its owner.
pub(super) fn inotify(spec: &Spec<'_>, host: &Host) -> Inotify {
    // As root the owner is an id that no other sandbox has.
    let share = if matches!(spec.ids, IdMode::Range { .. }) { 1 } else { SHARE_OF_USER };
    let most =
        |wanted: Option<u32>, default: u32, user: u32| wanted.unwrap_or(default).min(user / share).max(1);
    Inotify {
        instances: most(
            spec.limits.inotify_instances,
            DEFAULT_INOTIFY_INSTANCES,
            host.user_inotify.instances,
        ),
        watches: most(spec.limits.inotify_watches, DEFAULT_INOTIFY_WATCHES, host.user_inotify.watches),
    }
}

fn sys(out: &mut Building<'_>) -> Result<(), Error> {
    let attrs = SAFE | ATTR_NOEXEC;
    memory(out, SMALL_BYTES, c"755", attrs, "/new/sys")?;
    for path in ["/new/sys/devices", "/new/sys/devices/system", "/new/sys/devices/system/cpu"] {
        dir(out, path, 0o755)?;
    }
    out.push(Step::Bind(Bind {
        source: Source::Path(c"/old/sys/devices/system/cpu".into()),
        attrs: attrs | ATTR_RDONLY,
        target: Target::Exact(c"/new/sys/devices/system/cpu".into()),
        presence: Presence::IfPresent,
    }));
    out.push(Step::Restrict { path: c"/new/sys".into(), attrs: ATTR_RDONLY });
    Ok(())
}

fn dev(spec: &Spec<'_>, out: &mut Building<'_>) -> Result<(), Error> {
    // Not NODEV: the devices are mounts of their own below it, but the flag is inherited by nobody.
    memory(out, DEV_BYTES, c"755", SAFE | ATTR_NOEXEC, "/new/dev")?;
    for name in DEVICES {
        let target = c(format!("/new/dev/{name}"))?;
        out.push(Step::File { path: target.clone(), mode: 0o666, bytes: Vec::new() });
        out.push(Step::Bind(Bind {
            source: Source::Path(c(format!("/old/dev/{name}"))?),
            attrs: ATTR_NOSUID | ATTR_NOEXEC,
            target: Target::Exact(target),
            presence: Presence::Required,
        }));
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        out.push(Step::Link { target: c(target)?, path: c(format!("/new/dev/{name}"))? });
    }
    for (name, mode) in [("pts", 0o755), ("shm", 0o1777), ("mqueue", 0o1777)] {
        dir(out, &format!("/new/dev/{name}"), mode)?;
    }
    let mut options: Vec<(&'static CStr, Option<CString>)> = vec![
        (c"source", Some(c"devpts".into())),
        (c"ptmxmode", Some(c"666".into())),
        (c"mode", Some(c"620".into())),
        (c"max", Some(c(MAX_TERMINALS.to_string())?)),
    ];
    if spec.ids.has_root() {
        options.push((c"gid", Some(TTY_GROUP.to_owned())));
    }
    let attrs = ATTR_NOSUID | ATTR_NOEXEC;
    out.push(Step::Mount { kind: c"devpts", options, attrs, target: c"/new/dev/pts".into() });
    memory(out, SHM_BYTES, c"1777", SAFE, "/new/dev/shm")?;
    let options: Vec<(&'static CStr, Option<CString>)> = vec![(c"source", Some(c"mqueue".into()))];
    let attrs = SAFE | ATTR_NOEXEC;
    out.push(Step::Mount { kind: c"mqueue", options, attrs, target: c"/new/dev/mqueue".into() });
    Ok(())
}

fn memory(out: &mut Building<'_>, bytes: &CStr, mode: &CStr, attrs: u64, target: &str) -> Result<(), Error> {
    out.push(Step::Mount {
        kind: c"tmpfs",
        options: vec![
            (c"source", Some(c"tmpfs".into())),
            (c"size", Some(bytes.to_owned())),
            (c"mode", Some(mode.to_owned())),
        ],
        attrs,
        target: c(target)?,
    });
    Ok(())
}

fn dir(out: &mut Building<'_>, path: &str, mode: u16) -> Result<(), Error> {
    out.push(Step::Dir { path: c(path)?, mode });
    Ok(())
}

fn setting(out: &mut Building<'_>, name: &str, value: &str) -> Result<(), Error> {
    out.push(Step::Setting { path: c(format!("/new/proc/sys/user/{name}"))?, value: c(value)? });
    Ok(())
}
