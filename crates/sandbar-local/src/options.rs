//! What a caller asks for, taken apart: each field is honoured or refused here, before any effect.

use std::path::Path;
use std::time::Duration;

use sandbar_core::{
    Base, CreateOptions, EgressPolicy, EnvVars, Error, ErrorKind, Isolation, Lifetime, LimitDemand,
    MainCommand, RestartPolicy, Result,
};
use sandbar_engine::Host;
use sandbar_engine::cgroup::Controller;

use crate::bounds;
use crate::config::{BACKEND, Defaults};
use crate::error::{fail, io_error};
use crate::home::{AgentMark, Home};
use crate::mounts;
use crate::network;
use crate::shim::protocol::{CreateOrders, LimitOrders, MainOrder, ReadyOrder};
use crate::store::{Boot, TemplateDocument};
use crate::template;

/// Turns options into orders for a shim, or refuses them.
pub(crate) fn resolve(options: CreateOptions, home: &Path, defaults: &Defaults) -> Result<CreateOrders> {
    options.check().map_err(|error| error.with_backend(BACKEND))?;
    let CreateOptions {
        project,
        name,
        base,
        env,
        // Checked by its type; delivering it is the caller's matter.
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
    let boot = boot(base, home)?;
    let variables = env.bytes() + boot.defaults.env_bytes();
    if variables > EnvVars::MAX_BYTES {
        let most = EnvVars::MAX_BYTES;
        let why = format!(
            "the variables take {variables} bytes with those of the template, and {most} are the most"
        );
        return Err(fail(ErrorKind::InvalidInput, "create", why).with_hint("put long values in a file"));
    }
    let egress = egress.map(|policy| network::seal("create", policy)).transpose()?;
    let targets =
        host_mounts.iter().map(|mount| &mount.target).chain(volumes.iter().map(|mount| &mount.path));
    targets.into_iter().try_for_each(mounts::check_target)?;
    if min_isolation > Isolation::Namespaces {
        let why = "the strongest isolation of this version is `namespaces`";
        return Err(refuse(&format!("isolation `{}`", isolation_name(min_isolation)), why));
    }
    bounds::check("create", &resources)?;
    let limits = LimitOrders::new(resources, limit_demand, defaults);
    if limit_demand == LimitDemand::Enforced {
        check_demand(&limits)?;
    }
    let owner = match lifetime {
        Lifetime::Detached => None,
        Lifetime::Owned => AgentMark::of(rustix::process::getpid())
            .map_err(|cause| io_error("create", "this process", cause))?,
    };
    let (main, ready) = match main {
        // What the template says of readiness is about its own main command.
        Some(main) => (Some(main_order(main)?), None),
        None => (default_main(&boot), default_ready(&boot, defaults)?),
    };
    Ok(CreateOrders {
        boot,
        name,
        project,
        env,
        labels,
        ports: ports.into_iter().map(Into::into).collect(),
        mounts: host_mounts.into_iter().map(Into::into).collect(),
        volumes: volumes.into_iter().map(Into::into).collect(),
        limits,
        on_deadline,
        lifetime_ms: deadline.or(defaults.deadline).map(millis).transpose()?,
        renewal_ms: None,
        owner,
        // What is denied anyway is no order.
        egress: egress.filter(|policy| *policy.public() != EgressPolicy::DenyAll),
        main,
        ready,
        // Not an option of one sandbox, but of who makes it.
        audit: None,
    })
}

/// The main command that the template has for sandboxes that are given none.
fn default_main(boot: &Boot) -> Option<MainOrder> {
    (!boot.defaults.start.is_empty()).then(|| MainOrder {
        argv: boot.defaults.start.clone(),
        env: EnvVars::default(),
        cwd: None,
        user: None,
        restart: RestartPolicy::default(),
    })
}

/// What has to succeed before a sandbox of the template is ready.
fn default_ready(boot: &Boot, defaults: &Defaults) -> Result<Option<ReadyOrder>> {
    if boot.defaults.ready.is_empty() {
        return Ok(None);
    }
    let within_ms = millis(defaults.ready_within)?;
    Ok(Some(ReadyOrder { argv: boot.defaults.ready.clone(), within_ms }))
}

/// The main command in the words of the agent, which speaks text.
fn main_order(main: MainCommand) -> Result<MainOrder> {
    let MainCommand { command, restart, cwd, env, user } = main;
    let text = |what: &str, bytes: &[u8]| {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| {
            refuse(&format!("{what} that is not UTF-8"), "the guest's protocol carries text")
                .with_hint("put the bytes in a file and let a script use it")
        })
    };
    let argv = command.argv().iter().map(|argument| text("an argument", argument.as_encoded_bytes()));
    Ok(MainOrder {
        argv: argv.collect::<Result<_>>()?,
        env,
        cwd: cwd.map(|cwd| text("a working folder", cwd.as_bytes())).transpose()?,
        user,
        restart,
    })
}

/// What it boots from. A template's layers are looked at again when they are used.
fn boot(base: Base, home: &Path) -> Result<Boot> {
    let template = match base {
        Base::Default => return Ok(Boot::host()),
        Base::Template(template) if template.as_str() == template::HOST => return Ok(Boot::host()),
        Base::Template(template) => template,
        Base::Image(_) => {
            return Err(refuse("an image", "sandboxes boot from templates").with_hint(
                "make a template of it first: `sandbar template pull`, or `sandbar template import`",
            ));
        }
    };
    let document = match Home::open(home)? {
        Some(home) => TemplateDocument::read(&home, &template)?,
        None => None,
    };
    let document = document.ok_or_else(|| {
        Error::not_found("create", format!("template `{template}`"))
            .with_backend(BACKEND)
            .with_hint("`sandbar template ls` shows those that are there")
    })?;
    Ok(document.boot())
}

/// Refuses what this machine can't enforce as far as can be seen from here; the shim looks again at what came of it.
fn check_demand(limits: &LimitOrders) -> Result<()> {
    let host = Host::observe();
    for name in &limits.demanded {
        let (enforced, watched) = match name.as_str() {
            "memory" => (host.cgroups.offers(Controller::Memory), true),
            "cpu" => (host.cgroups.offers(Controller::Cpu), false),
            // With a single id the kernel counts the user's processes in the sandbox alone.
            "pids" => (host.cgroups.offers(Controller::Pids) || !host.needs_range(), true),
            _ => (false, true),
        };
        if !enforced {
            return Err(mounts::not_enforced(name, watched, &host));
        }
    }
    Ok(())
}

/// A lifetime in whole milliseconds, at least one.
fn millis(lifetime: Duration) -> Result<u64> {
    let millis = u64::try_from(lifetime.as_millis()).ok().filter(|millis| i64::try_from(*millis).is_ok());
    let beyond = || {
        fail(ErrorKind::InvalidInput, "create", format!("a deadline of {} s is too long", lifetime.as_secs()))
    };
    let millis = millis.ok_or_else(beyond)?.max(1);
    jiff::Timestamp::now().checked_add(Duration::from_millis(millis)).map_err(|_| beyond())?;
    Ok(millis)
}

fn refuse(feature: &str, why: &str) -> Error {
    Error::unsupported("create", feature, why).with_backend(BACKEND)
}

fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Emulated => "emulated",
        Isolation::Namespaces => "namespaces",
        Isolation::Gvisor => "gvisor",
        Isolation::MicroVm => "micro-vm",
        _ => "stronger",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use sandbar_core::{Command, GuestPath, Resources, TemplateId, VolumeMount, VolumeName};

    use super::*;

    fn refused(options: CreateOptions) -> Error {
        resolve(options, Path::new("/nonexistent"), &Defaults::default()).unwrap_err()
    }

    #[test]
    fn what_is_not_there_is_refused_with_the_reason() {
        let odd = std::ffi::OsString::from_vec(vec![0xff]);
        let main = MainCommand::new(Command::new("true").arg(odd));
        for options in [
            CreateOptions::new().with_main(main),
            CreateOptions::new().with_egress(EgressPolicy::allow(["[2001:db8::/32]:443"]).unwrap()),
            CreateOptions::new().with_min_isolation(Isolation::MicroVm),
            CreateOptions { base: Base::Image("busybox".into()), ..CreateOptions::new() },
        ] {
            let error = refused(options);
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.feature().is_some() && error.backend() == Some("local"), "{error}");
        }
        let template = TemplateId::new("ubuntu").unwrap();
        assert_eq!(refused(CreateOptions::new().with_template(template)).kind(), ErrorKind::NotFound);
        let disk = CreateOptions::new()
            .with_resources(Resources::default().with_disk_bytes(1))
            .with_limit_demand(LimitDemand::Enforced);
        // Memory is demanded with it, and where there are no control groups it is what is missed first.
        let missed = refused(disk);
        assert!(["disk", "memory"].iter().any(|name| missed.feature().unwrap().contains(name)), "{missed}");
        let volume =
            VolumeMount { volume: VolumeName::new("v").unwrap(), path: GuestPath::new("/proc/v").unwrap() };
        assert_eq!(refused(CreateOptions::new().with_volume(volume)).kind(), ErrorKind::InvalidInput);
        let slow = CreateOptions::new().with_resources(Resources::default().with_cpu_millis(9));
        assert_eq!(refused(slow).kind(), ErrorKind::InvalidInput);
        let long = CreateOptions::new().with_deadline(Duration::MAX);
        assert_eq!(refused(long).kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn what_is_not_asked_for_takes_the_defaults() {
        let orders = resolve(CreateOptions::new(), Path::new("/nonexistent"), &Defaults::default()).unwrap();
        assert_eq!(orders.limits.memory_bytes, Some(crate::config::DEFAULT_MEMORY));
        assert_eq!(orders.lifetime_ms, Some(3_600_000));
        assert!(orders.owner.is_none() && orders.limits.demanded.is_empty());
        let owned = CreateOptions::new()
            .with_lifetime(Lifetime::Owned)
            .with_template(TemplateId::new("host").unwrap());
        assert!(resolve(owned, Path::new("/nonexistent"), &Defaults::default()).unwrap().owner.is_some());
    }
}
