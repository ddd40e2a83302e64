//! What a sandbox was made from, kept in its folder: a stopped one is started again by it, and copies are made by it.

use std::io;

use sandbar_core::{EgressPolicy, Limit};

use super::protocol::CreateOrders;
use crate::home::{Folder, SealedPolicy, StoredRecord};
use crate::store::Boot;

/// The file, of mode 0600 in a folder of mode 0700: it holds the environment.
const ORDERS: &str = "orders.json";
/// Longest file that is read, in bytes: as what a shim takes.
const MAX_ORDERS: usize = super::protocol::MAX_LINE;

/// Keeps the orders of a sandbox, without what is not needed for another start: its owner, whose pipe ends with its maker, its policy, which has a file of
/// its own, and where to tell of it, which the record has.
pub(super) fn keep(folder: &Folder, orders: &CreateOrders) -> io::Result<()> {
    let kept = CreateOrders { owner: None, egress: None, audit: None, ..orders.clone() };
    folder.replace_file(ORDERS, &serde_json::to_vec(&kept)?, MAX_ORDERS)
}

/// The orders by which a sandbox could be made as it is now: what changed since its creation stands in its record. `None` means that it was made by a
/// version that did not keep them.
pub(crate) fn orders(folder: &Folder, record: &StoredRecord) -> io::Result<Option<CreateOrders>> {
    let Some(bytes) = folder.read_file(ORDERS, MAX_ORDERS)? else { return Ok(None) };
    let mut orders: CreateOrders = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    orders.boot = record.private.boot.clone().unwrap_or_else(Boot::host);
    orders.name.clone_from(&record.name);
    orders.project.clone_from(&record.project);
    orders.labels.clone_from(&record.labels);
    orders.on_deadline = record.on_deadline;
    orders.audit.clone_from(&record.private.audit);
    orders.egress = policy(folder, record)?;
    let value = |name: &str| record.limits.get(name).and_then(|limit: &Limit| limit.value);
    orders.limits.memory_bytes = value("memory");
    orders.limits.cpu_millis = value("cpu").and_then(|value| u32::try_from(value).ok());
    orders.limits.pids = value("pids").and_then(|value| u32::try_from(value).ok());
    orders.limits.disk_bytes = value("disk");
    Ok(Some(orders))
}

/// Whether nobody else can come to hold a file of the sandbox' own: through a folder that others use, too, whatever its access, a descriptor can be handed
/// out of the sandbox, and work on what it names afterwards.
pub(crate) fn keeps_to_itself(orders: &CreateOrders) -> bool {
    orders.mounts.is_empty() && orders.volumes.is_empty()
}

/// The policy in force, with its secrets; nothing where it denies all.
fn policy(folder: &Folder, record: &StoredRecord) -> io::Result<Option<SealedPolicy>> {
    let policy = match &record.egress.policy {
        Some(policy) => SealedPolicy::seal(policy.clone()),
        None => folder.policy()?,
    };
    Ok(policy.filter(|policy| *policy.public() != EgressPolicy::DenyAll))
}
