use std::path::Path;

use super::wording::bounded;

/// What kind of machine this is, as far as it can be told from inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    pub(crate) container: Option<Container>,
    /// Microsoft's Linux subsystem; version 1 has no Linux kernel at all.
    pub(crate) wsl: Option<u32>,
    /// The kernel is gVisor's.
    pub(crate) gvisor: bool,
}

/// A container, by who made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    Docker,
    Podman,
    Kubernetes,
    Lxc,
    Nspawn,
    Other,
}

impl Container {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
            Self::Kubernetes => "Kubernetes",
            Self::Lxc => "LXC",
            Self::Nspawn => "systemd-nspawn",
            Self::Other => "some engine",
        }
    }
}

impl Surroundings {
    pub(crate) fn look() -> Self {
        let release = bounded("/proc/sys/kernel/osrelease").unwrap_or_default().to_lowercase();
        let version = bounded("/proc/version").unwrap_or_default();
        Self {
            container: container(),
            wsl: release.contains("microsoft").then(|| if release.contains("wsl2") { 2 } else { 1 }),
            gvisor: version.contains("gVisor") || Path::new("/proc/sentry-meminfo").exists(),
        }
    }
}

/// Numbers of the namespaces that the kernel starts with, from `linux/proc_ns.h`.
const FIRST: [(&str, &str); 2] = [("pid", "pid:[4026531836]"), ("cgroup", "cgroup:[4026531835]")];

/// What engines leave for programs to find: files of their own, and the variable `container` of the first process, where it can be read. Images
/// of machines that were made from a container's have the files, too, so a process in the first namespaces is in none.
fn container() -> Option<Container> {
    let is_first = |(kind, name): &(&str, &str)| {
        std::fs::read_link(format!("/proc/self/ns/{kind}")).is_ok_and(|at| at == Path::new(name))
    };
    if FIRST.iter().all(is_first) {
        return None;
    }
    let exists = |path: &str| Path::new(path).exists();
    if exists("/var/run/secrets/kubernetes.io") {
        return Some(Container::Kubernetes);
    }
    if exists("/.dockerenv") {
        return Some(Container::Docker);
    }
    if exists("/run/.containerenv") {
        return Some(Container::Podman);
    }
    let named = bounded("/run/systemd/container").or_else(|_| {
        let environ = bounded("/proc/1/environ")?;
        let named = environ.split('\0').find_map(|entry| entry.strip_prefix("container="));
        named.map(str::to_owned).ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
    });
    named.ok().map(|name| match name.trim() {
        "docker" => Container::Docker,
        "podman" => Container::Podman,
        "lxc" | "lxc-libvirt" => Container::Lxc,
        "systemd-nspawn" => Container::Nspawn,
        _ => Container::Other,
    })
}
