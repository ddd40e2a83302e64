use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::create::{Cgroup, Version, write, write_if_there};
use super::layout::Controller;
use crate::error::Error;

/// How often a condition of the kernel's is looked at that it gives no event for.
const POLL: Duration = Duration::from_millis(1);

impl Cgroup {
    /// Kills every process in the group. They are gone when [`Cgroup::processes`] is empty.
    ///
    /// Without `cgroup.kill` (version 1 alone, or a kernel before 5.14) it signals what it finds until nothing new
    /// shows up, at most `bound`.
    pub fn kill(&self, bound: Duration) -> Result<(), Error> {
        if let Some(member) = &self.v2
            && write_if_there(&member.dir.join("cgroup.kill"), "1")?
        {
            return Ok(());
        }
        let end = Instant::now() + bound;
        loop {
            let pids = self.processes()?;
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                // It may have ended on its own since.
                let _ = kill_process(pid, Signal::KILL);
            }
            if Instant::now() >= end {
                return Err(Error::reason("kill processes of sandbox", self.id(), "new ones kept appearing"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Stops every process in the group and waits, at most `bound`, until the kernel says that all have stopped.
    pub fn freeze(&self, bound: Duration) -> Result<(), Error> {
        self.set_frozen("1", "FROZEN", bound)
    }

    /// Lets them run again.
    pub fn thaw(&self, bound: Duration) -> Result<(), Error> {
        self.set_frozen("0", "THAWED", bound)
    }

    /// Whether [`Cgroup::freeze`] has a mechanism here.
    pub fn can_freeze(&self) -> bool {
        self.v2.as_ref().is_some_and(|member| member.dir.join("cgroup.freeze").exists())
            || self.find(Controller::Freezer).is_some()
    }

    /// Asks the kernel to take back the memory of the group as far as that goes; the answer is how many bytes it has less. Version 2 only.
    pub fn reclaim(&self) -> Option<u64> {
        let (Version::Two, dir) = self.find(Controller::Memory)? else { return None };
        let before = self.stats().memory_bytes?;
        // Less than asked for is an error to the kernel, and none here.
        let _ = write_if_there(&dir.join("memory.reclaim"), &before.to_string());
        Some(before.saturating_sub(self.stats().memory_bytes?))
    }

    /// Processes in the group as host pids. Those of another pid namespace that can't be seen from here are left out.
    pub fn processes(&self) -> Result<Vec<Pid>, Error> {
        let Some(member) = self.members().next() else { return Ok(Vec::new()) };
        let path = member.dir.join("cgroup.procs");
        let text = std::fs::read_to_string(&path).map_err(|cause| {
            Error::io("list processes of control group", path.display().to_string(), cause)
        })?;
        Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)).collect())
    }

    /// Removes the groups, waiting at most `bound` for processes that are on their way out. Gone already is fine.
    pub fn remove(&self, bound: Duration) -> Result<(), Error> {
        let end = Instant::now() + bound;
        for member in self.members() {
            loop {
                match std::fs::remove_dir(&member.dir) {
                    Ok(()) => break,
                    Err(cause) if cause.kind() == io::ErrorKind::NotFound => break,
                    Err(cause) if cause.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                        std::thread::sleep(POLL);
                    }
                    Err(cause) => {
                        let dir = member.dir.display().to_string();
                        return Err(Error::io("remove control group", dir, cause));
                    }
                }
            }
        }
        Ok(())
    }

    fn set_frozen(&self, v2: &str, v1: &str, bound: Duration) -> Result<(), Error> {
        let end = Instant::now() + bound;
        let done: Box<dyn Fn() -> io::Result<bool>>;
        let frozen = self.v2.as_ref().map(|member| member.dir.join("cgroup.freeze"));
        if let Some(file) = frozen.filter(|file| file.exists()) {
            write(&file, v2)?;
            let events = file.with_file_name("cgroup.events");
            let wanted = format!("frozen {v2}");
            done = Box::new(move || Ok(std::fs::read_to_string(&events)?.lines().any(|line| line == wanted)));
        } else if let Some((_, dir)) = self.find(Controller::Freezer) {
            let file = dir.join("freezer.state");
            write(&file, v1)?;
            let wanted = v1.to_owned();
            done = Box::new(move || Ok(std::fs::read_to_string(&file)?.trim() == wanted));
        } else {
            let is_gone = self.v2.as_ref().is_some_and(|member| !member.dir.exists());
            let why = if is_gone {
                "its control group is gone: it is being destroyed"
            } else {
                "this machine has no freezer for it"
            };
            return Err(Error::reason("freeze sandbox", self.id(), why));
        }
        while !done().map_err(|cause| Error::io("freeze sandbox", self.id(), cause))? {
            if Instant::now() >= end {
                return Err(Error::reason("freeze sandbox", self.id(), "not all processes stopped in time"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
