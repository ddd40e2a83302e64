//! What room this machine has.

use std::path::Path;

use async_trait::async_trait;
use rustix::fs::statvfs;
use sandbar_core::{Capacity, CapacityReport, Result, SandboxId, UsageHistory, UsageReport};

use crate::error::{fail, io_error};
use crate::home::Home;
use crate::provider::LocalProvider;

#[async_trait]
impl CapacityReport for LocalProvider {
    /// Disk space and inodes are those of the data folder's file system, or of where it will be made. Memory is the machine's: a limit on the
    /// caller's own control group is not looked at. Nothing is taken off for what sandboxes that run may still come to use.
    async fn measure(&self) -> Result<Capacity> {
        let meminfo = std::fs::read_to_string("/proc/meminfo");
        Ok(assess(self.home(), meminfo.as_deref().map_err(ToString::to_string)))
    }
}

#[async_trait]
impl UsageHistory for LocalProvider {
    async fn ended(&self, id: Option<&SandboxId>) -> Result<UsageReport> {
        const OPERATION: &str = "read usage";
        let Some(home) = Home::open(self.home())? else { return Ok(UsageReport::default()) };
        let id = id.cloned();
        let read = tokio::task::spawn_blocking(move || home.usage(id.as_ref()));
        match read.await {
            Ok(report) => report.map_err(|cause| io_error(OPERATION, "`usage.jsonl`", cause)),
            Err(cause) => Err(fail(
                sandbar_core::ErrorKind::Unexpected,
                OPERATION,
                format!("the reader was lost: {cause}"),
            )),
        }
    }
}

fn assess(home: &Path, meminfo: Result<&str, String>) -> Capacity {
    let mut missing = Vec::new();
    let mut capacity = Capacity::default();
    // The data folder need not be there yet.
    let place = home.ancestors().find(|place| place.exists()).unwrap_or(home);
    match statvfs(place) {
        Ok(stat) => {
            capacity.disk_bytes = Some(stat.f_bavail.saturating_mul(stat.f_frsize));
            if stat.f_files > 0 {
                capacity.inodes = Some(stat.f_favail);
            } else {
                missing.push(format!("inodes: the file system of `{}` does not limit them", place.display()));
            }
        }
        Err(cause) => missing.push(format!("disk space and inodes: `{}`: {cause}", place.display())),
    }
    match meminfo.and_then(|text| available(text).ok_or_else(|| "it has no `MemAvailable`".to_owned())) {
        Ok(bytes) => capacity.memory_bytes = Some(bytes),
        Err(cause) => missing.push(format!("memory: `/proc/meminfo`: {cause}")),
    }
    // Without a block or an inode no sandbox can be made. That there are some does not say that one will do.
    if capacity.disk_bytes == Some(0) || capacity.inodes == Some(0) {
        capacity.admits = Some(false);
    } else {
        missing.push("whether one more fits: what it will use is not known".to_owned());
    }
    capacity.detail = missing.join("; ");
    capacity
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_measured_is_absent_with_the_reason() {
        let capacity = assess(Path::new("/tmp/not/there/yet"), Ok("MemTotal: 5 kB\nMemAvailable:    4 kB\n"));
        assert_eq!(capacity.memory_bytes, Some(4096));
        assert!(capacity.disk_bytes.is_some_and(|bytes| bytes > 0), "{capacity:?}");
        for (text, why) in
            [(Ok("MemTotal: 5 kB\n"), "MemAvailable"), (Err("no such file".to_owned()), "no such file")]
        {
            let capacity = assess(Path::new("/tmp"), text);
            assert_eq!(capacity.memory_bytes, None);
            assert!(capacity.detail.contains(why), "{}", capacity.detail);
        }
    }

    #[test]
    fn no_room_at_all_admits_nothing() {
        // A file system without blocks.
        let capacity = assess(Path::new("/proc"), Ok("MemAvailable: 4 kB\n"));
        assert_eq!((capacity.admits, capacity.disk_bytes), (Some(false), Some(0)), "{capacity:?}");
    }
}
