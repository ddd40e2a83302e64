use std::sync::Arc;

use super::deadline::{Timer, after};
use super::disk::{Device, Disk, NodeId};
use super::fault::Fault;
use super::machine::{Machine, Plan};
use super::program::Registry;
use super::world::{BACKEND, World};
use crate::{
    Base, CreateOptions, EgressPolicy, Error, ErrorKind, Isolation, Lifetime, LimitDemand, Resources, Result,
    SandboxId, TemplateId, VolumeAttachment, VolumeMount,
};

/// Makes a sandbox as `options` say.
pub(super) fn create(world: &Arc<World>, options: CreateOptions) -> Result<Arc<Machine>> {
    options.check()?;
    check_runtime()?;
    let CreateOptions {
        project,
        name,
        base,
        env,
        // Checked when it was put together; there is nothing else to do with it.
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
        lifetime,
    } = options;
    if !ports.is_empty() {
        return Err(unsupported("ports", "emulated programs have no network"));
    }
    if !host_mounts.is_empty() {
        return Err(unsupported("host mounts", "the emulated disk knows nothing of the host"));
    }
    if egress.is_some_and(|policy| policy != EgressPolicy::DenyAll) {
        return Err(unsupported(
            "egress policy",
            "emulated programs have no network, so only `deny-all` is true",
        ));
    }
    if limit_demand == LimitDemand::Enforced && resources != Resources::default() {
        return Err(unsupported("enforced limits", "nothing stands behind the limits of emulated programs"));
    }
    if min_isolation > Isolation::Emulated {
        return Err(unsupported("isolation", "nothing runs for real here, so there is no wall"));
    }
    match lifetime {
        // A sandbox in memory never outlives its process; that nobody relies on more is the caller's part, as the provider's doc says.
        Lifetime::Owned | Lifetime::Detached => {}
    }
    let template = match base {
        Base::Default => None,
        Base::Template(template) => Some(template),
        Base::Image(_) => return Err(unsupported("images", "boot from a template instead")),
    };
    let deadline = deadline.map(after).transpose()?;
    let attachments = volumes
        .into_iter()
        .map(|VolumeMount { volume, path }| VolumeAttachment { name: volume, path })
        .collect();
    let plan = Plan { name, project, template, labels, env, resources, volumes: attachments };
    let machine = insert(world, plan, None, on_deadline)?;
    machine.set_deadline(deadline);
    if let Some(main) = main
        && let Err(error) = super::main_command::start(&machine, main)
    {
        world.undo(&machine.id);
        return Err(error);
    }
    Ok(machine)
}

/// Adds a machine: a copy of `source`, or of what the plan boots from.
pub(super) fn insert(
    world: &Arc<World>,
    plan: Plan,
    source: Option<NodeId>,
    on_deadline: crate::DeadlineAction,
) -> Result<Arc<Machine>> {
    let mut held = world.lock();
    if let Some(name) = &plan.name
        && held.machines.values().any(|machine| machine.plan.name.as_ref() == Some(name))
    {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "create",
            format!("sandbox name `{name}` is taken"),
        )
        .with_backend(BACKEND));
    }
    let source = match (source, &plan.template) {
        (Some(source), _) => source,
        (None, None) => world.base,
        (None, Some(template)) => held.templates.get(template).ok_or_else(|| no_template(template))?.root,
    };
    let mut mounts = Vec::new();
    for VolumeAttachment { name, path } in &plan.volumes {
        let volume = held
            .volumes
            .get(name)
            .ok_or_else(|| Error::not_found("create", format!("volume `{name}`")).with_backend(BACKEND))?;
        mounts.push((path.clone(), volume.root));
    }
    let mut disk = world.disk.lock();
    let root = disk.copy_tree(source);
    for (path, volume) in mounts {
        if let Err(why) = disk.mount(root, path.as_bytes(), volume) {
            disk.drop_tree(root);
            return Err(Error::invalid("create", format!("can't mount at `{path}`: {}", why.words())));
        }
    }
    if world.faults.take(Fault::Create) {
        disk.drop_tree(root);
        return Err(Error::new(ErrorKind::Unexpected, "create", "injected failure").with_backend(BACKEND));
    }
    drop(disk);
    held.next_id += 1;
    let id = SandboxId::new(format!("mem{:08x}", held.next_id))?;
    let machine =
        Machine::new(id.clone(), plan, root, world.disk.clone(), world.programs.clone(), on_deadline);
    let machine = Arc::new(machine);
    Timer::start(world, &machine);
    held.machines.insert(id, machine.clone());
    Ok(machine)
}

fn unsupported(feature: &str, why: &str) -> Error {
    Error::unsupported("create", feature, why).with_backend(BACKEND)
}

fn no_template(template: &TemplateId) -> Error {
    Error::not_found("create", format!("template `{template}`"))
        .with_backend(BACKEND)
        .with_hint("commit a sandbox under this id first, or leave the template out")
}

fn check_runtime() -> Result<()> {
    tokio::runtime::Handle::try_current().map(drop).map_err(|cause| {
        Error::new(ErrorKind::Config, "create", "there is no tokio runtime here to run emulated programs on")
            .with_source(cause)
    })
}

/// The disk of the default template: users, a few folders, the programs.
pub(super) fn base_tree(disk: &mut Disk, programs: &Registry) -> NodeId {
    let root = disk.new_root("root");
    let dirs =
        ["/bin", "/dev", "/etc", "/usr/local/bin", "/home", "/root", "/tmp", "/var/tmp", "/run", "/opt"];
    let files: [(&str, &str); 2] = [
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n"),
        ("/etc/group", "root:x:0:\nuser:x:1000:\n"),
    ];
    let mut fill = || {
        for dir in dirs {
            disk.make_dirs(root, dir.as_bytes(), "root")?;
        }
        disk.make_dirs(root, b"/home/user", "user")?;
        disk.make_link(root, b"/usr/bin", b"/bin", "root")?;
        for (path, text) in files {
            disk.replace(root, path.as_bytes(), text.as_bytes(), "root")?;
        }
        for name in programs.names() {
            let path = format!("/bin/{name}").into_bytes();
            disk.replace(root, &path, &[super::program::MAGIC, name.as_bytes()].concat(), "root")?;
            disk.chmod(root, &path, 0o755)?;
        }
        disk.chmod(root, b"/tmp", 0o1777)?;
        disk.chmod(root, b"/root", 0o700)?;
        Ok::<(), super::disk::DiskError>(())
    };
    let filled = fill();
    debug_assert_eq!(filled, Ok(()), "the default template's own paths");
    disk.make_device(root, b"/dev/null", Device::Null);
    disk.make_device(root, b"/dev/zero", Device::Zero);
    root
}
