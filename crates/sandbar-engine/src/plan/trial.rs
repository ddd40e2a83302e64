use std::path::PathBuf;

use rustix::fd::BorrowedFd;

use super::base::{self, Layers, SAFE};
use super::build::{Building, Plan, TreeMap, TreeOrigin, c, check_root};
use super::counted::counted;
use super::step::Step;
use crate::error::Error;
use crate::host::{Host, Inotify};
use crate::ids::IdMode;
use crate::limits::{Enforced, Enforcement};
use crate::seccomp::SetidBits;
use crate::spec::{Durability, Network};
use crate::sys::{ATTR_NOEXEC, ATTR_RDONLY};

/// Something that a launch does, alone, to see whether this machine lets it.
#[derive(Debug, Clone)]
pub(crate) enum Trial {
    /// Namespaces, ids and a root of one's own.
    Namespaces,
    /// A fresh `/proc`.
    Procfs,
    /// A writable overlay in `writable`, over this folder.
    Overlay { lower: PathBuf },
    /// The system call filter.
    Filter,
    /// Landlock, to this version.
    Landlock { abi: u32 },
    /// A packet filter that leads what leaves to a gateway.
    PacketFilter,
}

/// The steps of a launch up to what is tried, by the same steps that a launch has, and then the end.
pub(crate) fn trial<'a>(
    trial: &Trial,
    ids: &IdMode,
    host: &Host,
    writable: BorrowedFd<'a>,
) -> Result<Plan<'a>, Error> {
    check_root(host)?;
    let mut out = Building { trees: Vec::new(), steps: Vec::new() };
    let network = match trial {
        Trial::PacketFilter => Network::Gateway,
        _ => Network::Loopback,
    };
    base::begin("probe", ids.has_root(), network, &mut out)?;
    match trial {
        Trial::Namespaces | Trial::PacketFilter => {}
        Trial::Procfs => {
            dir(&mut out, "/new/proc")?;
            out.push(Step::Mount {
                kind: c"proc",
                options: vec![(c"source", Some(c"proc".into()))],
                attrs: SAFE | ATTR_NOEXEC,
                target: c"/new/proc".into(),
            });
        }
        Trial::Overlay { lower } => {
            let layers = base::layer(&mut out, TreeOrigin::Layers, TreeMap::Plain, SAFE)?;
            let lower =
                base::layer(&mut out, TreeOrigin::Path(lower.clone()), TreeMap::Sandbox, SAFE | ATTR_RDONLY)?;
            base::overlay(
                &mut out,
                &[lower],
                Some((&layers, "")),
                (Layers::OfSeveral, Durability::Volatile),
                "/new",
            )?;
            // Writing is what it is for: a copy to the upper layer, with its attributes.
            dir(&mut out, "/new/written")?;
        }
        Trial::Filter => {
            out.push(Step::NoNewPrivileges);
            out.push(Step::Filter);
        }
        Trial::Landlock { abi } => {
            dir(&mut out, "/dev")?;
            dir(&mut out, "/dev/mqueue")?;
            out.push(Step::NoNewPrivileges);
            out.push(Step::Landlock { abi: *abi });
        }
    }
    out.push(Step::Done);
    let none = Enforcement::None;
    Ok(Plan {
        steps: out.steps,
        trees: out.trees,
        writable,
        ids: ids.clone(),
        host: host.clone(),
        cgroup: None,
        filter: crate::seccomp::program(SetidBits::Allowed),
        descriptors: [writable; 4],
        counted: counted(ids, host),
        enforced: Enforced { memory: none, cpu: none, pids: none, disk: none, nofile: none, inotify: none },
        inotify: Inotify { instances: 0, watches: 0 },
        nofile: 0,
    })
}

fn dir(out: &mut Building<'_>, path: &str) -> Result<(), Error> {
    out.push(Step::Dir { path: c(path)?, mode: 0o755 });
    Ok(())
}
