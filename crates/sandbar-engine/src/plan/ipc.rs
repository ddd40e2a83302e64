use super::build::{Building, c};
use super::step::Step;
use crate::error::Error;

/// The kernel's own size of one System V queue (`MSGMNB` of `linux/msg.h`).
const QUEUE_BYTES: u64 = 16_384;
/// Of the memory limit, what System V queues may hold: their messages belong to no process.
const SHARE_OF_QUEUES: u64 = 8;
/// Never fewer queues than a data base needs, nor more than the kernel's own count (`MSGMNI`).
const QUEUES: (u64, u64) = (32, 32_000);
/// Semaphores in a set, in all, operations in a call, and sets. The kernel's own (32,000 sets of 32,000) are 64 GiB of
/// memory that belong to no process; data bases ask for 250 to 1,000 a set.
const SEMAPHORES: &str = "1000 32000 500 1000";

/// Bounds what the sandbox's System V objects hold, since they outlive the processes that made them. Only the owner of
/// these settings may change them, which is the sandbox's root (and Linux before 6.9 lets nobody but the host's).
pub(super) fn add(memory_bytes: Option<u64>, out: &mut Building<'_>) -> Result<(), Error> {
    let mut put = |name: &str, value: String| {
        let path = c(format!("/new/proc/sys/kernel/{name}"))?;
        out.push(Step::SettingIfMay { path, value: c(value)? });
        Ok::<_, Error>(())
    };
    put("sem", SEMAPHORES.to_owned())?;
    if let Some(bytes) = memory_bytes {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(u64::MAX);
        put("shmall", (bytes / page).max(1).to_string())?;
        put("shmmax", bytes.to_string())?;
        let (least, most) = QUEUES;
        put("msgmni", (bytes / SHARE_OF_QUEUES / QUEUE_BYTES).clamp(least, most).to_string())?;
    }
    Ok(())
}
