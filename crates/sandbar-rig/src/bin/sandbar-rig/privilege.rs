//! Capabilities in the rig's own user namespace: kept by what sets the rig up, not by the command.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities,
};

/// What setting up takes.
const NEEDED: [CapabilitySet; 4] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::NET_ADMIN,
    CapabilitySet::NET_RAW,
    CapabilitySet::NET_BIND_SERVICE,
];

/// Keeps what setting up takes over the start of another program.
pub(crate) fn keep_over_exec() -> std::io::Result<()> {
    let held = capabilities(None)?;
    let inheritable = NEEDED.into_iter().fold(CapabilitySet::empty(), |all, one| all | one);
    set_capabilities(None, CapabilitySets { inheritable, ..held })?;
    for one in NEEDED {
        configure_capability_in_ambient_set(one, true)?;
    }
    Ok(())
}

/// Keeps nothing over the start of another program, where this process is not root.
pub(crate) fn drop_at_exec() -> std::io::Result<()> {
    clear_ambient_capability_set()?;
    let held = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..held })?)
}
