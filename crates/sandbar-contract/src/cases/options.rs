use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{
    Command, CreateOptions, DeadlineAction, EgressPolicy, Error, ErrorKind, FilesExt, HostMount, Isolation,
    Lifetime, LimitDemand, LimitState, MainCommand, MountAccess, PortPublication, ProviderExt, Query,
    Resources, RestartPolicy, Sandbox, SandboxRecord, VolumeMount, VolumeName,
};

use crate::bed::Bed;
use crate::case::group;
use crate::cases::ports::free_port;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, expect_error, fail, sh, skip_unsupported};
use crate::harness::Feature;

group!("options";
    port_zero_is_invalid, port_named_twice_is_invalid, ports_are_published_or_refused,
    host_port_is_honoured_or_refused, taken_host_port_leaves_nothing,
    missing_volume_is_an_error, mount_at_root_is_invalid, two_mounts_at_one_place_are_invalid,
    relative_host_mount_is_invalid, missing_host_mount_source_is_an_error, host_mount_shows_its_source,
    read_only_host_mount_is_not_written, limit_of_zero_is_invalid, limits_are_in_the_record,
    enforced_limits_are_enforced_or_refused, deny_all_is_in_the_record, allow_all_is_in_the_record_or_refused,
    deadline_of_zero_is_invalid, deadline_is_in_the_record, deadline_action_is_in_the_record,
    isolation_is_met_or_refused, owned_is_honoured_or_refused, empty_main_command_is_invalid,
    main_command_runs, main_command_is_not_parsed_again, main_command_that_cannot_run_is_an_error,
    main_command_is_left_when_it_ends, main_command_restarts_on_failure, main_command_restarts_always,
);

/// Creates, expects an error of one of `kinds`, and that nothing is left.
async fn refused(
    bed: &Bed<'_>,
    kinds: &[ErrorKind],
    what: &str,
    change: impl FnOnce(CreateOptions) -> CreateOptions,
) -> Checked<Error> {
    let (options, mark) = bed.marked_options()?;
    let error = expect_error(bed.create(change(options)).await, kinds, what)?;
    none_marked(bed, what, mark).await?;
    Ok(error)
}

async fn none_marked(bed: &Bed<'_>, what: &str, mark: sandbar_core::Labels) -> Checked {
    let left = bed.provider().list_all(Query::new().with_labels(mark)).await?;
    for record in &left {
        bed.adopt(&record.id);
    }
    ensure!(left.is_empty(), "{what}: the refused create left {} sandboxes", left.len());
    Ok(())
}

/// Creates; refused as unsupported, nothing may be left, and the case is skipped.
async fn honoured(
    bed: &Bed<'_>,
    what: &str,
    change: impl FnOnce(CreateOptions) -> CreateOptions,
) -> Checked<(Arc<dyn Sandbox>, SandboxRecord)> {
    let (options, mark) = bed.marked_options()?;
    let created = bed.create(change(options)).await;
    if let Err(error) = &created
        && error.kind() == ErrorKind::Unsupported
    {
        ensure!(error.feature().is_some(), "{what}: the refusal names no feature: {error}");
        none_marked(bed, what, mark).await?;
    }
    let sandbox = skip_unsupported(created)?;
    let record = bed.describe(sandbox.id()).await?;
    Ok((sandbox, record))
}

async fn port_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    refused(bed, &[ErrorKind::InvalidInput], "port 0", |options| options.with_ports([0])).await.map(drop)
}

async fn port_named_twice_is_invalid(bed: &Bed<'_>) -> Checked {
    let twice = |options: CreateOptions| options.with_ports([8080, 80, 8080]);
    refused(bed, &[ErrorKind::InvalidInput], "a port twice", twice).await.map(drop)
}

async fn ports_are_published_or_refused(bed: &Bed<'_>) -> Checked {
    let (_, record) = honoured(bed, "ports", |options| options.with_ports([8123, 9123])).await?;
    let mut guests: Vec<u16> = record.ports.iter().map(|mapping| mapping.guest).collect();
    guests.sort_unstable();
    ensure_eq!(guests, vec![8123, 9123], "ports in the record");
    let odd = record.ports.iter().find(|mapping| mapping.host.is_empty() || mapping.port == 0);
    ensure!(odd.is_none(), "a mapping leads nowhere: {odd:?}");
    Ok(())
}

async fn host_port_is_honoured_or_refused(bed: &Bed<'_>) -> Checked {
    let port = free_port()?;
    let wanted = PortPublication::new(8123).with_port(port);
    let (_, record) = honoured(bed, "a host port", |options| options.with_publication(wanted)).await?;
    let found: Vec<_> = record.ports.iter().map(|mapping| (mapping.guest, mapping.port)).collect();
    ensure_eq!(found, vec![(8123, port)], "ports in the record");
    Ok(())
}

async fn taken_host_port_leaves_nothing(bed: &Bed<'_>) -> Checked {
    let port = free_port()?;
    let wanted = PortPublication::new(8123).with_port(port);
    let (_holder, _) = honoured(bed, "a host port", |options| options.with_publication(wanted)).await?;
    refused(bed, &[ErrorKind::AlreadyExists], "a taken host port", |options| options.with_publication(wanted))
        .await
        .map(drop)
}

async fn missing_volume_is_an_error(bed: &Bed<'_>) -> Checked {
    let volume = VolumeName::new(bed.unique("no-such-volume"))?;
    let mount = VolumeMount { volume, path: at("/mnt/kit")? };
    let kinds = [ErrorKind::NotFound, ErrorKind::Unsupported];
    refused(bed, &kinds, "a missing volume", |options| options.with_volume(mount)).await.map(drop)
}

async fn mount_at_root_is_invalid(bed: &Bed<'_>) -> Checked {
    let mount = VolumeMount { volume: VolumeName::new("any")?, path: at("/")? };
    refused(bed, &[ErrorKind::InvalidInput], "a mount at `/`", |options| options.with_volume(mount))
        .await
        .map(drop)
}

async fn two_mounts_at_one_place_are_invalid(bed: &Bed<'_>) -> Checked {
    let mount = |name: &str| Checked::Ok(VolumeMount { volume: VolumeName::new(name)?, path: at("/mnt/a")? });
    let (one, other) = (mount("one")?, mount("other")?);
    let both = |options: CreateOptions| options.with_volume(one).with_volume(other);
    refused(bed, &[ErrorKind::InvalidInput], "two mounts at one place", both).await.map(drop)
}

fn host_mount(source: impl Into<std::path::PathBuf>, access: MountAccess) -> Checked<HostMount> {
    Ok(HostMount { source: source.into(), target: at("/mnt/kit")?, access })
}

async fn relative_host_mount_is_invalid(bed: &Bed<'_>) -> Checked {
    let mount = host_mount("some/folder", MountAccess::ReadOnly)?;
    refused(bed, &[ErrorKind::InvalidInput], "a relative source", |options| options.with_host_mount(mount))
        .await
        .map(drop)
}

async fn missing_host_mount_source_is_an_error(bed: &Bed<'_>) -> Checked {
    let mount = host_mount(format!("/{}", bed.unique("no-such-folder")), MountAccess::ReadOnly)?;
    let kinds = [ErrorKind::InvalidInput, ErrorKind::NotFound, ErrorKind::Unsupported];
    refused(bed, &kinds, "a missing source", |options| options.with_host_mount(mount)).await.map(drop)
}

/// A folder of this machine with one file, readable for all.
fn host_folder() -> Checked<tempfile::TempDir> {
    let make = || {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("file"), "from the host")?;
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open)?;
        std::io::Result::Ok(folder)
    };
    make().or_else(|error| fail(format!("can't make a folder to mount: {error}")))
}

async fn host_mount_shows_its_source(bed: &Bed<'_>) -> Checked {
    bed.need(Feature::HostMounts)?;
    let folder = host_folder()?;
    let mount = host_mount(folder.path(), MountAccess::ReadOnly)?;
    let (sandbox, _) = honoured(bed, "a host mount", |options| options.with_host_mount(mount)).await?;
    ensure_eq!(sh(&*sandbox, "cat /mnt/kit/file").await?.stdout_lossy(), "from the host", "content");
    Ok(())
}

async fn read_only_host_mount_is_not_written(bed: &Bed<'_>) -> Checked {
    bed.need(Feature::HostMounts)?;
    let folder = host_folder()?;
    let mount = host_mount(folder.path(), MountAccess::ReadOnly)?;
    let (sandbox, _) = honoured(bed, "a host mount", |options| options.with_host_mount(mount)).await?;
    let written = sandbox.commands().run(&Command::shell("echo x > /mnt/kit/new")).await?;
    ensure!(!written.status.is_success(), "a write into a read-only mount succeeded");
    ensure!(!folder.path().join("new").exists(), "the host's folder was written to");
    Ok(())
}

async fn limit_of_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    for (what, resources) in [
        ("memory 0", Resources::default().with_memory_bytes(0)),
        ("cpu 0", Resources::default().with_cpu_millis(0)),
        ("pids 0", Resources::default().with_pids(0)),
        ("disk 0", Resources::default().with_disk_bytes(0)),
    ] {
        refused(bed, &[ErrorKind::InvalidInput], what, |options| options.with_resources(resources)).await?;
    }
    Ok(())
}

/// Limits that any machine can give.
fn modest() -> Resources {
    Resources::default().with_memory_bytes(512 * 1024 * 1024).with_pids(256)
}

async fn limits_are_in_the_record(bed: &Bed<'_>) -> Checked {
    let (_, record) = honoured(bed, "limits", |options| options.with_resources(modest())).await?;
    for (name, value) in [("memory", 512 * 1024 * 1024), ("pids", 256)] {
        let limit = record.limits.get(name);
        ensure_eq!(limit.and_then(|limit| limit.value), Some(value), format!("limit `{name}`"));
    }
    Ok(())
}

async fn enforced_limits_are_enforced_or_refused(bed: &Bed<'_>) -> Checked {
    let demand =
        |options: CreateOptions| options.with_resources(modest()).with_limit_demand(LimitDemand::Enforced);
    let (_, record) = honoured(bed, "enforced limits", demand).await?;
    for name in ["memory", "pids"] {
        let state = record.limits.get(name).map(|limit| limit.state);
        ensure_eq!(state, Some(LimitState::Enforced), format!("state of limit `{name}`"));
    }
    Ok(())
}

async fn deny_all_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let policy = EgressPolicy::DenyAll;
    let (_, record) = honoured(bed, "deny-all", |options| options.with_egress(policy.clone())).await?;
    ensure_eq!(record.egress.policy, Some(policy), "policy");
    Ok(())
}

async fn allow_all_is_in_the_record_or_refused(bed: &Bed<'_>) -> Checked {
    let policy = EgressPolicy::AllowAll;
    let (_, record) = honoured(bed, "allow-all", |options| options.with_egress(policy.clone())).await?;
    ensure_eq!(record.egress.policy, Some(policy), "policy");
    Ok(())
}

async fn deadline_of_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let zero = |options: CreateOptions| options.with_deadline(Duration::ZERO);
    refused(bed, &[ErrorKind::InvalidInput], "deadline 0", zero).await.map(drop)
}

async fn deadline_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let hour = |options: CreateOptions| options.with_deadline(Duration::from_secs(3600));
    let (_, record) = honoured(bed, "a deadline", hour).await?;
    let Some(deadline) = record.deadline else { return fail("the record has no deadline") };
    let left = deadline.as_second() - jiff::Timestamp::now().as_second();
    ensure!((3300..=3700).contains(&left), "asked for 3600 s, {left} s are left");
    Ok(())
}

async fn deadline_action_is_in_the_record(bed: &Bed<'_>) -> Checked {
    let pause = |options: CreateOptions| {
        options.with_deadline(Duration::from_secs(3600)).with_on_deadline(DeadlineAction::Pause)
    };
    let (_, record) = honoured(bed, "pause at the deadline", pause).await?;
    ensure_eq!(record.on_deadline, DeadlineAction::Pause, "action");
    Ok(())
}

async fn isolation_is_met_or_refused(bed: &Bed<'_>) -> Checked {
    for tier in [Isolation::Emulated, Isolation::Namespaces, Isolation::Gvisor, Isolation::MicroVm] {
        let (options, mark) = bed.marked_options()?;
        match bed.create(options.with_min_isolation(tier)).await {
            Ok(sandbox) => {
                let found = bed.describe(sandbox.id()).await?.isolation.tier;
                ensure!(found >= tier, "asked for at least {tier:?}, got {found:?}");
            }
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Unsupported, format!("refusal of {tier:?}"));
                none_marked(bed, "isolation", mark).await?;
            }
        }
    }
    Ok(())
}

async fn owned_is_honoured_or_refused(bed: &Bed<'_>) -> Checked {
    let owned = |options: CreateOptions| options.with_lifetime(Lifetime::Owned);
    let (sandbox, _) = honoured(bed, "an owned sandbox", owned).await?;
    sh(&*sandbox, "true").await.map(drop)
}

/// Options with a main command.
fn with_main(options: CreateOptions, command: Command, restart: RestartPolicy) -> CreateOptions {
    options.with_main(MainCommand::new(command).with_restart(restart))
}

async fn empty_main_command_is_invalid(bed: &Bed<'_>) -> Checked {
    let empty = |options| with_main(options, Command::new(""), RestartPolicy::No);
    refused(bed, &[ErrorKind::InvalidInput], "an empty main command", empty).await.map(drop)
}

async fn main_command_runs(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("echo started > /tmp/main; sleep 60");
    let (sandbox, _) = honoured(bed, "a main command", |o| with_main(o, command, RestartPolicy::No)).await?;
    let path = at("/tmp/main")?;
    eventually("the main command's file", || async { Ok(sandbox.files().exists(&path).await?) }).await
}

async fn main_command_is_not_parsed_again(bed: &Bed<'_>) -> Checked {
    let odd = "two words; $HOME 'quoted' \"q\"";
    let script = "printf '%s' \"$1\" > /tmp/new && mv /tmp/new /tmp/main; sleep 60";
    let command = Command::shell(script).args(["name", odd]);
    let (sandbox, _) = honoured(bed, "a main command", |o| with_main(o, command, RestartPolicy::No)).await?;
    let path = at("/tmp/main")?;
    eventually("the main command's file", || async { Ok(sandbox.files().exists(&path).await?) }).await?;
    ensure_eq!(sandbox.files().read(&path).await?, odd.as_bytes(), "its argument");
    Ok(())
}

async fn main_command_that_cannot_run_is_an_error(bed: &Bed<'_>) -> Checked {
    let (options, mark) = bed.marked_options()?;
    let command = Command::new("/no/such/program");
    let created = bed.create(with_main(options, command, RestartPolicy::No)).await;
    ensure!(created.is_err(), "create with a main command that does not exist succeeded");
    none_marked(bed, "a main command that can't run", mark).await
}

async fn starts(sandbox: &dyn Sandbox) -> Checked<usize> {
    let path = at("/tmp/starts")?;
    if !sandbox.files().exists(&path).await? {
        return Ok(0);
    }
    Ok(sandbox.files().read(&path).await?.split(|b| *b == b'\n').count() - 1)
}

async fn main_command_is_left_when_it_ends(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("echo x >> /tmp/starts; exit 1");
    let (sandbox, _) = honoured(bed, "a main command", |o| with_main(o, command, RestartPolicy::No)).await?;
    eventually("its first start", || async { Ok(starts(&*sandbox).await? == 1) }).await?;
    // Long enough for a restart to show; a restart later than that would be a slow machine's luck, never a false alarm.
    sh(&*sandbox, "sleep 1").await?;
    ensure_eq!(starts(&*sandbox).await?, 1, "starts");
    Ok(())
}

async fn main_command_restarts_on_failure(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("echo x >> /tmp/starts; exit 1");
    let policy = RestartPolicy::OnFailure;
    let (sandbox, _) = honoured(bed, "restart on failure", |o| with_main(o, command, policy)).await?;
    eventually("its second start", || async { Ok(starts(&*sandbox).await? >= 2) }).await
}

async fn main_command_restarts_always(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("echo x >> /tmp/starts; exit 0");
    let policy = RestartPolicy::Always;
    let (sandbox, _) = honoured(bed, "restart always", |o| with_main(o, command, policy)).await?;
    eventually("its second start", || async { Ok(starts(&*sandbox).await? >= 2) }).await
}
