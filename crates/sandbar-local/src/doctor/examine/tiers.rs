use std::path::Path;

use sandbar_engine::host;

use super::Look;
use super::programs::ask;
use crate::doctor::report::Finding;
use crate::doctor::table::tiers as table;
use crate::helper::is_trusted;

const DEVICE: &str = "/dev/kvm";

pub(super) fn packet_filter(look: &Look) -> Finding {
    match host::probe_packet_filter(&look.host) {
        Ok(()) => Finding::ok(&table::PACKET_FILTER, "made a rule that redirects, through netlink"),
        // What stands in the way of namespaces has a line of its own.
        Err(error) if error.operation().contains("packet filter") => {
            Finding::bad(&table::PACKET_FILTER_MISSING, &look.facts, error.to_string())
        }
        Err(error) => Finding::unknown(&table::PACKET_FILTER, format!("it could not be tried: {error}")),
    }
}

pub(super) fn runsc(look: &Look) -> Finding {
    let found = std::env::split_paths(&look.environment.path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("runsc"))
        .find(|file| file.is_file());
    let Some(found) = found else {
        return Finding::bad(&table::RUNSC_ABSENT, &look.facts, "looked in each folder of PATH");
    };
    let shown = found.display();
    // Whoever could have put it there would be what runs, as this user.
    let folder = found.parent().unwrap_or(Path::new("/"));
    let (real, real_folder) = match found.canonicalize() {
        Ok(real) => (real.clone(), real.parent().unwrap_or(Path::new("/")).to_owned()),
        Err(cause) => return Finding::unknown(&table::RUNSC, format!("`{shown}`: {cause}")),
    };
    if let Some(open) = [folder, &real, &real_folder].into_iter().find(|path| !is_trusted(path)) {
        let why = format!("`{shown}` was not run: others may change `{}`", open.display());
        return Finding::bad(&table::RUNSC_UNTRUSTED, &look.facts, why);
    }
    match ask(&found, &["--version"]) {
        Ok(answer) if answer.status.success() => {
            let version = answer.said.lines().next().unwrap_or_default().to_owned();
            Finding::ok(&table::RUNSC, format!("`{shown}`: {version}; that it runs a sandbox is not tried"))
        }
        Ok(answer) => Finding::bad(
            &table::RUNSC_FAILS,
            &look.facts,
            format!("`{shown} --version` ends with {}", answer.status),
        ),
        Err(cause) => Finding::bad(&table::RUNSC_FAILS, &look.facts, format!("`{shown} --version`: {cause}")),
    }
}

pub(super) fn kvm(look: &Look) -> Finding {
    let nested = if is_virtual() {
        "; this machine is a virtual one itself, and other kernels may fail where this worked"
    } else {
        ""
    };
    match host::probe_kvm(Path::new(DEVICE)) {
        Ok(host::Kvm::Runs) => Finding::ok(
            &table::KVM,
            format!("ran two instructions; that a whole kernel boots is not tried{nested}"),
        ),
        Ok(_) => {
            Finding::ok(&table::KVM, format!("made a virtual machine; that it runs is not tried{nested}"))
        }
        Err(error) if error.is_not_found() => {
            Finding::bad(&table::KVM_ABSENT, &look.facts, error.to_string())
        }
        Err(error) if error.is_refused() => {
            Finding::bad(&table::KVM_FORBIDDEN, &look.facts, error.to_string())
        }
        Err(error) => Finding::bad(&table::KVM_BROKEN, &look.facts, error.to_string()),
    }
}

/// Processors tell that they are a hypervisor's.
fn is_virtual() -> bool {
    crate::doctor::wording::bounded("/proc/cpuinfo")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor")))
}
