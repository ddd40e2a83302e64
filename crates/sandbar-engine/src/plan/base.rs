use std::ffi::{CStr, CString};
use std::path::Path;

use rustix::fs::{AtFlags, fstat, stat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::build::{Building, STAGE_LAYERS, TreeMap, TreeOrigin, c};
use super::network;
use super::step::{Bind, Presence, Source, Step, Target};
use crate::error::Error;
use crate::handover::AGENT_PATH;
use crate::ids::{IdMode, USER_ID};
use crate::spec::{Access, Durability, HostPrograms, MountOwners, Network, Owners, Spec};
use crate::sys::{ATTR_NODEV, ATTR_NOSUID, ATTR_RDONLY};

/// What every mount has that is not a device.
pub(super) const SAFE: u64 = ATTR_NOSUID | ATTR_NODEV;

/// A sandbox is a better victim than a program of the host's when the host runs out of memory; 0 is a normal program's
/// preference, 1000 the maximum. Where the launch has host root's `CAP_SYS_RESOURCE` this is also the least that a sandbox can give
/// itself; elsewhere it is a preference that a program inside can take back, down to its maker's own.
pub(crate) const OOM_SCORE: &CStr = c"300";

/// The home of the sandbox' user, from the root.
const USER_HOME: &CStr = c"home/user";

/// What can be done before the id maps are there, then the ids, then the stage.
pub(super) fn identity(spec: &Spec<'_>, out: &mut Building<'_>) -> Result<(), Error> {
    begin(spec.hostname, spec.ids.has_root(), spec.network, out)
}

/// As [`identity`], without a whole specification.
pub(super) fn begin(
    hostname: &str,
    has_root: bool,
    net: Network,
    out: &mut Building<'_>,
) -> Result<(), Error> {
    out.push(Step::ResetSignals);
    out.push(Step::JoinCgroups);
    out.push(Step::OomScore(OOM_SCORE.to_owned()));
    out.push(Step::NewSession);
    out.push(Step::NewCgroupNamespace);
    out.push(Step::Hostname(c(hostname)?));
    out.push(Step::LoopbackUp);
    network::add(net, out);
    out.push(Step::PrivateMounts);
    out.push(Step::AwaitMaps);
    if has_root {
        out.push(Step::BecomeRoot);
    }
    out.push(Step::NotDumpable);
    out.push(Step::EnterStage);
    Ok(())
}

/// The root overlay, and over it the host's programs where the template has them.
pub(super) fn root<'a>(spec: &Spec<'a>, out: &mut Building<'a>) -> Result<(), Error> {
    let layers = layer(out, TreeOrigin::Layers, TreeMap::Plain, SAFE)?;
    let mut lowers = vec![own(spec, out)?];
    for lower in &spec.root.lowers {
        lowers.push(layer(out, TreeOrigin::Fd(lower.dir), map_of(lower.owners), SAFE | ATTR_RDONLY)?);
    }
    overlay(out, &lowers, Some((&layers, "")), (Layers::OfSeveral, spec.durability), "/new")?;
    let Some(host) = &spec.root.host else { return Ok(()) };
    let mut lowers = Vec::with_capacity(host.usr.len() + 2);
    for lower in &host.usr {
        lowers.push(layer(out, TreeOrigin::Fd(lower.dir), map_of(lower.owners), SAFE | ATTR_RDONLY)?);
    }
    lowers.push(layer(out, TreeOrigin::Fd(host.additions), TreeMap::Sandbox, SAFE | ATTR_RDONLY)?);
    lowers.push(layer(out, TreeOrigin::Path(host.roots.usr.clone()), TreeMap::Sandbox, SAFE | ATTR_RDONLY)?);
    // Only where the mount maps ids do the owners of the host's files have names inside, which a copy needs.
    let upper = matches!(spec.ids, IdMode::Range { .. }).then_some((layers.as_str(), "usr-"));
    overlay(out, &lowers, upper, (Layers::of(host), spec.durability), "/new/usr")?;
    for name in &host.roots.folders {
        let origin = TreeOrigin::Path(Path::new("/").join(name));
        let tree = out.tree(origin, TreeMap::Sandbox, SAFE | ATTR_RDONLY);
        bind_tree(out, tree, SAFE | ATTR_RDONLY, Target::Exact(c(format!("/new/{name}"))?));
    }
    Ok(())
}

/// The files and folders that are this sandbox's own from the beginning, as the topmost of the read-only layers. Written through the overlay they
/// would cost a copy of each folder above them, and as much again when they are removed; and what the sandbox itself makes of them stays.
fn own(spec: &Spec<'_>, out: &mut Building<'_>) -> Result<String, Error> {
    const LAYER: &str = "/own";
    let hosts = format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {}\n",
        spec.hostname
    );
    for folder in ["", "/etc"] {
        out.push(Step::Dir { path: c(format!("{LAYER}{folder}"))?, mode: 0o755 });
    }
    let files =
        [("machine-id", machine_id(spec.id)), ("hostname", format!("{}\n", spec.hostname)), ("hosts", hosts)];
    let resolver = network::resolver(spec.network).map(|text| ("resolv.conf", text));
    for (name, text) in files.into_iter().chain(resolver) {
        let path = c(format!("{LAYER}/etc/{name}"))?;
        out.push(Step::File { path, mode: 0o644, bytes: text.into_bytes() });
    }
    if spec.ids.has_root() && !has_home(spec)? {
        let home = c(format!("{LAYER}/home/user"))?;
        out.push(Step::Dir { path: c(format!("{LAYER}/home"))?, mode: 0o755 });
        out.push(Step::Dir { path: home.clone(), mode: 0o755 });
        out.push(Step::OwnFolder { path: home, uid: USER_ID, gid: USER_ID });
    }
    Ok(LAYER.to_owned())
}

/// Whether a layer above the lowest has the home of the user: then its owner is right already, and what was made of it stays. The lowest one, which
/// nobody inside made, belongs to root throughout.
fn has_home(spec: &Spec<'_>) -> Result<bool, Error> {
    let above = spec.root.lowers.split_last().map_or(&[][..], |(_, above)| above);
    for lower in above {
        match statat(lower.dir, USER_HOME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
            Err(cause) => return Err(Error::io("look for the home folder in", "a layer", cause)),
        }
    }
    Ok(false)
}

fn map_of(owners: Owners) -> TreeMap {
    match owners {
        Owners::Inside => TreeMap::Sandbox,
        Owners::From(first) => TreeMap::From(first),
    }
}

/// 32 hexadecimal digits: the same at each launch of a sandbox, and another for every other one.
fn machine_id(id: &str) -> String {
    let digest = Sha256::new().chain_update("sandbar machine id\0").chain_update(id).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).chain(["\n".to_owned()]).collect()
}

/// The agent's file. It comes out of an overlay over its folder, so that the mount does not show where it lies.
pub(super) fn agent<'a>(spec: &Spec<'a>, out: &mut Building<'a>) -> Result<(), Error> {
    let (Some(folder), Some(name)) = (spec.agent.parent(), spec.agent.file_name()) else {
        return Err(Error::reason("plan sandbox", spec.agent.to_string_lossy(), "has no folder"));
    };
    let attrs = SAFE | ATTR_RDONLY;
    let folder = layer(out, TreeOrigin::Path(folder.to_owned()), TreeMap::Sandbox, attrs)?;
    out.push(Step::Dir { path: c"/a".into(), mode: 0o755 });
    // An overlay without a writable layer wants two others; the second is empty.
    overlay(out, &[folder, "/m/none".to_owned()], None, (Layers::OfSeveral, spec.durability), "/a")?;
    let target = c(format!("/new{AGENT_PATH}"))?;
    out.push(Step::File { path: target.clone(), mode: 0o555, bytes: Vec::new() });
    out.push(Step::Bind(Bind {
        source: Source::Path(c(Path::new("/a").join(name))?),
        attrs,
        target: Target::Exact(target.clone()),
        presence: Presence::Required,
    }));
    out.push(Step::NoteAgent(target));
    Ok(())
}

/// What the person asked for by name.
pub(super) fn mounts<'a>(spec: &Spec<'a>, out: &mut Building<'a>) -> Result<(), Error> {
    for mount in &spec.mounts {
        let attrs = match mount.access {
            Access::ReadOnly => SAFE | ATTR_RDONLY,
            Access::ReadWrite => SAFE,
        };
        let map = match mount.owners {
            MountOwners::User => TreeMap::Owner,
            MountOwners::Stored(owners) => map_of(owners),
        };
        let tree = out.tree(TreeOrigin::Fd(mount.source), map, attrs);
        let mut prefixes = Vec::new();
        let mut prefix = std::path::PathBuf::new();
        for component in mount.target.components().skip(1) {
            prefix.push(component);
            prefixes.push(c(&prefix)?);
        }
        bind_tree(out, tree, attrs, Target::InRoot(prefixes));
    }
    Ok(())
}

/// Puts a tree in the stage and answers its path there.
pub(super) fn layer<'a>(
    out: &mut Building<'a>,
    origin: TreeOrigin<'a>,
    map: TreeMap,
    attrs: u64,
) -> Result<String, Error> {
    let tree = out.tree(origin, map, attrs);
    let path = format!("{STAGE_LAYERS}/{tree}");
    let target = c(&path)?;
    out.push(Step::Dir { path: target.clone(), mode: 0o755 });
    bind_tree(out, tree, attrs, Target::Exact(target));
    Ok(path)
}

fn bind_tree(out: &mut Building<'_>, tree: usize, attrs: u64, target: Target) {
    out.push(Step::Bind(Bind { source: Source::Tree(tree), attrs, target, presence: Presence::Required }));
}

/// Whether the layers of an overlay lie on one file system or on several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layers {
    OfOne,
    OfSeveral,
}

impl Layers {
    /// Those of `/usr`: our additions lie with the data folder, which may be another file system than the host's programs.
    fn of(host: &HostPrograms<'_>) -> Self {
        match (fstat(host.additions), stat(&host.roots.usr)) {
            (Ok(additions), Ok(usr)) if additions.st_dev == usr.st_dev => Self::OfOne,
            _ => Self::OfSeveral,
        }
    }
}

/// `upper` is the folder of writable layers and the start of their names.
pub(super) fn overlay(
    out: &mut Building<'_>,
    lowers: &[String],
    upper: Option<(&str, &str)>,
    (layers, durability): (Layers, Durability),
    target: &str,
) -> Result<(), Error> {
    let mut options: Vec<(&'static CStr, Option<CString>)> = vec![
        (c"source", Some(c"overlay".into())),
        (c"lowerdir", Some(c(lowers.join(":"))?)),
        // Overlay's own marks as `user.` attributes: a user namespace may not write `trusted.` ones.
        (c"userxattr", None),
    ];
    if layers == Layers::OfSeveral {
        // One device and one space of inode numbers for all: what is deleted and still open is known by it. Where they are so anyway, the kernel
        // complains in its log about the option.
        options.push((c"xino", Some(c"on".into())));
    }
    let mut attrs = SAFE;
    match upper {
        Some((folder, start)) => {
            options.push((c"upperdir", Some(c(format!("{folder}/{start}upper"))?)));
            options.push((c"workdir", Some(c(format!("{folder}/{start}work"))?)));
            if durability == Durability::Volatile {
                options.push((c"volatile", None));
            }
        }
        None => attrs |= ATTR_RDONLY,
    }
    out.push(Step::Mount { kind: c"overlay", options, attrs, target: c(target)? });
    Ok(())
}
