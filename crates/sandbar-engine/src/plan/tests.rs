use std::os::fd::AsFd as _;
use std::path::Path;

use super::build::{Plan, plan};
use super::step::{Limited, Presence, Source, Step, Target};
use crate::cgroup;
use crate::error::Error;
use crate::host::{Host, Inotify, UserCounts, UserNamespaces};
use crate::ids::{IdMode, SubIds};
use crate::limits::{Enforcement, Limits};
use crate::rootfs::HostRoots;
use crate::spec::{Access, Durability, HostPrograms, Mount, MountOwners, Network, Root, Spec};
use crate::sys::{ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY};

/// One byte more than the kernel takes.
const TOO_LONG: &str = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

fn host(euid: u32) -> Host {
    Host {
        euid,
        egid: euid,
        kernel: "6.18.0".to_owned(),
        user_namespaces: UserNamespaces::Allowed,
        subordinate: None,
        newuidmap: None,
        newgidmap: None,
        cgroups: cgroup::Layout::default(),
        landlock_abi: 6,
        seccomp: true,
        lacks_capabilities: Vec::new(),
        nofile_max: 4096,
        user_inotify: Inotify { instances: 128, watches: 80_000 },
        user_counts: UserCounts {
            signals: Some(30_000),
            message_bytes: Some(819_200),
            locked_bytes: Some(8 << 20),
        },
    }
}

fn roots() -> HostRoots {
    HostRoots { usr: "/usr".into(), links: vec![("bin", "usr/bin".into())], folders: vec!["lib64"] }
}

/// Plans with any open descriptor standing for all of them: nothing is touched.
fn with_plan<T>(
    ids: IdMode,
    host: &Host,
    change: impl FnOnce(&mut Spec<'_>),
    look: impl FnOnce(Result<Plan<'_>, Error>) -> T,
) -> T {
    let file = std::fs::File::open("/").unwrap();
    let (fd, roots) = (file.as_fd(), roots());
    let mut spec = Spec {
        id: "s1",
        hostname: "box",
        ids,
        root: Root {
            lowers: vec![fd.into()],
            host: Some(HostPrograms { usr: Vec::new(), additions: fd, roots: &roots }),
        },
        writable: fd,
        durability: Durability::default(),
        mounts: Vec::new(),
        agent: Path::new("/opt/bin/sandbar"),
        config: fd,
        agent_listener: fd,
        ctl_listener: fd,
        log: fd,
        cgroup: None,
        limits: Limits::default(),
        network: Network::Loopback,
    };
    change(&mut spec);
    look(plan(&spec, host))
}

fn steps(ids: IdMode, euid: u32) -> Vec<Step> {
    with_plan(ids, &host(euid), |_| {}, |plan| plan.unwrap().steps)
}

fn position(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> usize {
    steps.iter().position(wanted).expect("the step is there")
}

#[test]
fn the_last_steps_are_the_walls_in_the_one_order_that_works() {
    let all = steps(IdMode::Single, 1000);
    let end: Vec<_> = all[all.len() - 6..].iter().map(std::mem::discriminant).collect();
    let wanted = [
        Step::Descriptors,
        Step::DropCapabilities { keep: 0 },
        Step::NoNewPrivileges,
        Step::Landlock { abi: 6 },
        Step::Filter,
        Step::Execute(c"/run/sandbar/agent".into()),
    ];
    assert_eq!(end, wanted.iter().map(std::mem::discriminant).collect::<Vec<_>>());
    assert!(all.contains(&Step::DropCapabilities { keep: 0 }));
}

#[test]
fn the_agent_is_noted_before_anything_that_was_asked_for_is_mounted() {
    let (source, target) = (rustix::fs::CWD, Path::new("/data/c"));
    let mount = Mount { source, target, access: Access::ReadOnly, owners: MountOwners::User };
    let all =
        with_plan(IdMode::Single, &host(1000), |spec| spec.mounts = vec![mount], |plan| plan.unwrap().steps);
    assert_eq!(all.last(), Some(&Step::Execute(c"/run/sandbar/agent".into())));
    let noted = position(&all, |step| *step == Step::NoteAgent(c"/new/run/sandbar/agent".into()));
    let asked = |step: &Step| matches!(step, Step::Bind(bind) if matches!(bind.target, Target::InRoot(_)));
    assert!(noted < position(&all, asked));
}

#[test]
fn mapped_modes_become_root_and_keep_the_named_list_only() {
    let all = steps(IdMode::range(1 << 20), 0);
    let keep = crate::capabilities::mask(crate::capabilities::SANDBOX_ROOT);
    assert!(all.contains(&Step::DropCapabilities { keep }));
    assert!(!all.iter().any(|step| matches!(step, Step::Landlock { .. })));
    let root = position(&all, |step| *step == Step::BecomeRoot);
    // Before the ids are mapped there is no id to take; before they are taken nothing may be made.
    assert!(position(&all, |step| *step == Step::AwaitMaps) < root);
    assert!(root < position(&all, |step| matches!(step, Step::Dir { .. } | Step::Mount { .. })));
    assert!(!steps(IdMode::Single, 1000).contains(&Step::BecomeRoot));
}

#[test]
fn the_groups_are_joined_before_their_namespace_is_made() {
    let all = steps(IdMode::Single, 1000);
    let joined = position(&all, |step| *step == Step::JoinCgroups);
    assert!(joined < position(&all, |step| *step == Step::NewCgroupNamespace));
}

#[test]
fn every_mount_is_without_setuid_and_every_one_but_devices_without_devices() {
    for (ids, euid) in [(IdMode::Single, 1000), (IdMode::range(1 << 20), 0)] {
        for step in steps(ids, euid) {
            let (attrs, device) = match &step {
                Step::Mount { kind, attrs, .. } => (*attrs, *kind == c"devpts"),
                // Taken from a mount whose attributes are set once, see below.
                Step::Bind(bind) if matches!(&bind.source, Source::Path(path) if path.to_bytes().starts_with(b"/m/")) =>
                {
                    assert_eq!(bind.attrs, 0);
                    continue;
                }
                Step::Restrict { path, attrs } if **path == *c"/m" => (*attrs, false),
                Step::Bind(bind) => (
                    bind.attrs,
                    matches!(&bind.source, Source::Path(path) if path.to_bytes().starts_with(b"/old/dev/")),
                ),
                _ => continue,
            };
            assert_ne!(attrs & ATTR_NOSUID, 0, "{step}");
            assert!(device || attrs & ATTR_NODEV != 0, "{step}");
        }
    }
}

#[test]
fn options_show_no_path_of_the_host() {
    for step in steps(IdMode::Single, 1000) {
        if let Step::Mount { options, .. } = step {
            for (key, value) in options {
                let value = value.map(|value| value.into_string().unwrap()).unwrap_or_default();
                assert!(!value.contains("/usr") && !value.contains("/opt"), "{key:?} {value}");
            }
        }
    }
}

#[test]
fn usr_is_writable_only_where_owners_have_names() {
    let usr_upper = |steps: &[Step]| {
        steps.iter().any(|step| {
            matches!(step, Step::Mount { options, .. } if options.iter().any(|(key, value)| {
                *key == c"upperdir" && value.as_ref().is_some_and(|v| v.to_bytes().ends_with(b"usr-upper"))
            }))
        })
    };
    assert!(usr_upper(&steps(IdMode::range(1 << 20), 0)));
    assert!(!usr_upper(&steps(IdMode::Single, 1000)));
}

/// What a sandbox finds in `/etc` from its beginning, by name.
fn own_file(id: &'static str, name: &str) -> String {
    let all = with_plan(IdMode::Single, &host(1000), |spec| spec.id = id, |plan| plan.unwrap().steps);
    let mounted = position(&all, |step| matches!(step, Step::Mount { kind, .. } if *kind == c"overlay"));
    let found = all[..mounted].iter().find_map(|step| match step {
        Step::File { path, bytes, .. } if path.to_str() == Ok(&format!("/own/etc/{name}")) => {
            Some(bytes.clone())
        }
        _ => None,
    });
    String::from_utf8(found.expect("it is there before its layer is mounted")).unwrap()
}

#[test]
fn a_machine_id_is_the_same_at_each_launch_and_another_for_each_sandbox() {
    let id = own_file("one", "machine-id");
    assert_eq!(id, own_file("one", "machine-id"));
    assert_ne!(id, own_file("other", "machine-id"));
    assert!(id.len() == 33 && id.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert!(own_file("one", "hosts").contains("localhost"));
}

#[test]
fn settings_are_written_before_proc_sys_is_closed() {
    let all = steps(IdMode::Single, 1000);
    let closed = position(
        &all,
        |step| matches!(step, Step::Bind(bind) if bind.source == Source::Path(c"/new/proc/sys".into())),
    );
    let last = all
        .iter()
        .rposition(|step| matches!(step, Step::Setting { .. } | Step::SettingIfMay { .. }))
        .unwrap();
    assert!(last < closed);
    let Step::Bind(bind) = &all[closed] else { unreachable!() };
    assert_eq!((bind.attrs & ATTR_RDONLY, bind.presence), (ATTR_RDONLY, Presence::Required));
    assert_eq!(bind.target, Target::Exact(c"/new/proc/sys".into()));
}

#[test]
fn a_read_write_mount_takes_setid_bits_away_from_all() {
    let programs = [Access::ReadOnly, Access::ReadWrite].map(|access| {
        with_plan(
            IdMode::Single,
            &host(1000),
            |spec| {
                let source = rustix::fs::CWD;
                spec.mounts =
                    vec![Mount { source, target: Path::new("/work"), access, owners: MountOwners::User }];
            },
            |plan| plan.unwrap().filter.len(),
        )
    });
    assert!(programs[0] < programs[1]);
}

#[test]
fn what_can_be_refused_beforehand_is() {
    let refused = |ids: IdMode, host: &Host, change: &dyn Fn(&mut Spec<'_>)| {
        with_plan(ids, host, |spec| change(spec), |plan| plan.err().map(|e| e.to_string()))
    };
    let nothing = |_: &mut Spec<'_>| {};
    let range = || IdMode::range(1 << 20);
    assert!(refused(range(), &host(0), &nothing).is_none());
    assert!(refused(range(), &host(1000), &nothing).is_some(), "a range without root");
    assert!(refused(IdMode::Single, &host(0), &nothing).is_some(), "host root as the user inside");
    assert!(
        refused(IdMode::Range { base: 0, count: 65_536 }, &host(0), &nothing).is_some(),
        "host root in it"
    );
    let sub = IdMode::Subordinate(SubIds { uid_base: 1, gid_base: 1, count: 65_535 });
    assert!(refused(sub, &host(1000), &nothing).unwrap().contains("not installed"));
    let mut weak = host(0);
    weak.lacks_capabilities = vec!["CAP_KILL"];
    assert!(refused(range(), &weak, &nothing).unwrap().contains("CAP_KILL"));
    let mut disabled = host(1000);
    disabled.user_namespaces = UserNamespaces::Disabled { setting: "user.max_user_namespaces" };
    assert!(refused(IdMode::Single, &disabled, &nothing).unwrap().contains("user.max_user_namespaces"));
    let mut unfiltered = host(1000);
    unfiltered.seccomp = false;
    assert!(refused(IdMode::Single, &unfiltered, &nothing).is_some());
    for target in ["work", "/", "/a/../b", "/proc/x", "/dev", "/run/x", "/sys"] {
        let error = with_plan(
            IdMode::Single,
            &host(1000),
            |spec| {
                let mount = Mount {
                    source: rustix::fs::CWD,
                    target: Path::new(target),
                    access: Access::ReadOnly,
                    owners: MountOwners::User,
                };
                spec.mounts = vec![mount];
            },
            |plan| plan.err().map(|e| e.to_string()),
        );
        assert!(error.is_some(), "`{target}`");
    }
    for hostname in ["", "a\nb", TOO_LONG] {
        let error =
            with_plan(IdMode::Single, &host(1000), |spec| spec.hostname = hostname, |plan| plan.is_err());
        assert!(error, "`{hostname}`");
    }
}

#[test]
fn without_groups_limits_are_watched_and_one_id_counts_processes() {
    let limits = Limits {
        memory_bytes: Some(1 << 30),
        cpus_milli: Some(500),
        pids: Some(64),
        disk_bytes: Some(1 << 30),
        ..Limits::default()
    };
    let enforced = |ids: IdMode, euid| {
        let change = |spec: &mut Spec<'_>| spec.limits = limits.clone();
        with_plan(ids, &host(euid), change, |plan| plan.unwrap().enforced())
    };
    let single = enforced(IdMode::Single, 1000);
    assert_eq!((single.memory, single.cpu), (Enforcement::Watched, Enforcement::Watched));
    assert_eq!((single.pids, single.nofile), (Enforcement::Enforced, Enforcement::Enforced));
    assert_eq!(enforced(IdMode::range(1 << 20), 0).pids, Enforcement::Watched);
    let without = with_plan(IdMode::Single, &host(1000), |_| {}, |plan| plan.unwrap().enforced());
    assert_eq!((without.memory, without.disk), (Enforcement::None, Enforcement::None));
}

#[test]
fn one_sandbox_can_not_take_all_of_what_is_counted_by_user() {
    let limits = |ids: IdMode, host: &Host| {
        with_plan(
            ids,
            host,
            |_| {},
            |plan| {
                let plan = plan.unwrap();
                let value = |wanted| {
                    plan.steps.iter().find_map(|step| match step {
                        Step::Limit { resource, value } if *resource == wanted => Some(*value),
                        _ => None,
                    })
                };
                let of_each = UserCounts {
                    signals: value(Limited::PendingSignals),
                    message_bytes: value(Limited::MessageBytes),
                    locked_bytes: value(Limited::LockedBytes),
                };
                assert_eq!((value(Limited::RealTime), value(Limited::Nice)), (Some(0), Some(0)));
                (of_each, plan.counted.of_owner)
            },
        )
    };
    let counts = |signals, message_bytes, locked_bytes| UserCounts {
        signals: Some(signals),
        message_bytes: Some(message_bytes),
        locked_bytes: Some(locked_bytes),
    };
    let quarter = counts(7_500, 204_800, 2 << 20);
    let half = counts(15_000, 409_600, 4 << 20);
    assert_eq!(limits(IdMode::Single, &host(1000)), (quarter, half));
    let range = counts(16_384, 819_200, 8 << 20);
    assert_eq!(limits(IdMode::range(1 << 20), &host(0)), (range, range));
    // A user without limits has nothing that could run out; a sandbox has its own bounds all the same.
    let mut unlimited = host(1000);
    unlimited.user_counts = UserCounts::default();
    assert_eq!(limits(IdMode::Single, &unlimited), (range, UserCounts::default()));
}

#[test]
fn one_sandbox_can_not_take_all_of_a_users_inotify() {
    let watch_settings = |ids: IdMode| {
        with_plan(
            ids,
            &host(0),
            |_| {},
            |plan| {
                let steps = plan.unwrap().steps;
                steps
                    .iter()
                    .map(ToString::to_string)
                    .filter(|step| step.contains("max_inotify"))
                    .collect::<Vec<_>>()
            },
        )
    };
    assert_eq!(watch_settings(IdMode::Range { base: 1 << 20, count: 65_536 }).len(), 2);
    with_plan(
        IdMode::Single,
        &host(1000),
        |_| {},
        |plan| {
            let steps = plan.unwrap().steps;
            let value = |name: &str| {
                steps.iter().find_map(|step| match step {
                    Step::Setting { path, value } if path.to_string_lossy().ends_with(name) => {
                        value.to_str().ok()?.parse().ok()
                    }
                    _ => None,
                })
            };
            assert_eq!(value("max_inotify_instances"), Some(32_u32));
            assert_eq!(value("max_inotify_watches"), Some(20_000_u32));
        },
    );
}

#[test]
fn a_network_has_a_gateway_only_where_it_is_asked_for() {
    let network = |network| {
        let change = |spec: &mut Spec<'_>| spec.network = network;
        with_plan(IdMode::Single, &host(1000), change, |plan| plan.unwrap().steps)
    };
    let of_gateway =
        |step: &Step| matches!(step, Step::Route(_) | Step::PacketFilter(_) | Step::NetworkSockets);
    assert!(!network(Network::Loopback).iter().any(of_gateway));
    let all = network(Network::Gateway);
    let steps: Vec<_> = (0..all.len()).filter(|at| of_gateway(&all[*at])).collect();
    // An address is there with the interface and its route; a socket is led to the gateway before there is one.
    let first = position(&all, |step| *step == Step::LoopbackUp) + 1;
    assert_eq!(steps, [first, first + 1, first + 2]);
    assert!(matches!(all[first], Step::Route(_)) && all[first + 2] == Step::NetworkSockets);
    assert!(first + 2 < position(&all, |step| *step == Step::AwaitMaps));
    let names = |step: &Step| matches!(step, Step::File { path, .. } if **path == *c"/own/etc/resolv.conf");
    assert!(all.iter().any(names) && !network(Network::Loopback).iter().any(names));
}
