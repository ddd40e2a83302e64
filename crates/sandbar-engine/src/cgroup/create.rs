use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::layout::{Controller, Layout};
use crate::error::Error;
use crate::limits::{Enforcement, Limits};

/// The folder, in every hierarchy, that holds the groups of all sandboxes.
const FOLDER: &str = "sandbar";
/// The scheduler's period in microseconds; the kernel's own default.
const CPU_PERIOD_US: u64 = 100_000;

/// The groups of one sandbox. Dropping it leaves them in place; see [`Cgroup::remove`].
#[derive(Debug, Clone)]
pub struct Cgroup {
    id: String,
    pub(super) v2: Option<Member>,
    pub(super) v1: Vec<Member>,
    pub(super) memory: Enforcement,
    pub(super) cpu: Enforcement,
    pub(super) pids: Enforcement,
}

#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) dir: PathBuf,
    pub(super) controllers: Vec<Controller>,
}

impl Cgroup {
    /// Makes the groups of sandbox `id` and sets its limits. `None` where the machine offers no group at all.
    /// A failure leaves no group behind.
    pub fn create(layout: &Layout, id: &str, limits: &Limits) -> Result<Option<Self>, Error> {
        check_id(id)?;
        let mut group = Self::places(layout, id);
        if group.v2.is_none() && group.v1.is_empty() {
            return Ok(None);
        }
        let made = group.make().and_then(|()| group.update(limits));
        if let Err(cause) = made {
            group.unmake();
            return Err(cause);
        }
        Ok(Some(group))
    }

    /// The groups that exist for sandbox `id`, for somebody who did not make them; `None` where there is none.
    pub fn reopen(layout: &Layout, id: &str) -> Result<Option<Self>, Error> {
        check_id(id)?;
        let mut group = Self::places(layout, id);
        group.v2 = group.v2.filter(|member| member.dir.is_dir());
        group.v1.retain(|member| member.dir.is_dir());
        if group.v2.is_none() && group.v1.is_empty() {
            return Ok(None);
        }
        group.look_at_limits();
        Ok(Some(group))
    }

    /// The ids of all sandboxes that have a group here, for finding what a crash left.
    pub fn list(layout: &Layout) -> Vec<String> {
        let parents = layout.v2.iter().map(|v2| &v2.parent).chain(layout.v1.iter().map(|v1| &v1.parent));
        let mut ids: Vec<String> = parents
            .filter_map(|parent| std::fs::read_dir(parent.join(FOLDER)).ok())
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The sandbox it belongs to.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How far the memory, processor and process limits hold, in this order.
    pub fn enforced(&self) -> [Enforcement; 3] {
        [self.memory, self.cpu, self.pids]
    }

    /// The version 2 group to start a process in, and files a process writes `0` to in order to join the others.
    /// Its own write spares the wait that moving a foreign process costs.
    pub(crate) fn join_files(&self) -> Result<(Option<File>, Vec<File>), Error> {
        let into = match &self.v2 {
            Some(member) => Some(open(&member.dir, OpenOptions::new().read(true))?),
            None => None,
        };
        let tasks = self
            .v1
            .iter()
            .map(|member| open(&member.dir.join("tasks"), OpenOptions::new().write(true)))
            .collect::<Result<_, _>>()?;
        Ok((into, tasks))
    }

    /// Sets limits anew; `None` in them takes a limit away.
    pub fn update(&mut self, limits: &Limits) -> Result<(), Error> {
        self.memory = self.limit_memory(limits.memory_bytes)?;
        self.cpu = self.limit_cpu(limits.cpus_milli)?;
        self.pids = self.limit_pids(limits.pids)?;
        Ok(())
    }

    /// Whether it has a limit of that kind to set.
    pub fn limits(&self, controller: Controller) -> bool {
        self.find(controller).is_some()
    }

    pub(super) fn find(&self, controller: Controller) -> Option<(Version, &Path)> {
        let v2 = self.v2.iter().map(|member| (Version::Two, member));
        let v1 = self.v1.iter().map(|member| (Version::One, member));
        v2.chain(v1)
            .find(|(_, member)| member.controllers.contains(&controller))
            .map(|(version, member)| (version, member.dir.as_path()))
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.v2.iter().chain(&self.v1)
    }

    fn places(layout: &Layout, id: &str) -> Self {
        let v2 = layout
            .v2
            .as_ref()
            .map(|v2| Member { dir: v2.parent.join(FOLDER).join(id), controllers: v2.controllers.clone() });
        let v1 = layout
            .v1
            .iter()
            // Where version 2 is there, it freezes and counts processor time; groups for that alone would only cost.
            .filter(|v1| {
                let free = |c: &Controller| matches!(c, Controller::Freezer | Controller::CpuAcct);
                v2.is_none() || !v1.controllers.iter().all(free)
            })
            .map(|v1| Member { dir: v1.parent.join(FOLDER).join(id), controllers: v1.controllers.clone() })
            .collect();
        let none = Enforcement::None;
        Self { id: id.to_owned(), v2, v1, memory: none, cpu: none, pids: none }
    }

    fn make(&mut self) -> Result<(), Error> {
        if let Some(member) = &mut self.v2 {
            member.controllers = hand_down(&member.dir, &member.controllers)?;
        }
        for member in self.members() {
            make_dir(&member.dir)?;
        }
        Ok(())
    }

    fn unmake(&self) {
        for member in self.members() {
            // Nothing has joined yet; a group that was not made answers "not found".
            let _ = std::fs::remove_dir(&member.dir);
        }
    }

    /// Sets the memory limit; `None` takes it away. One below what can't be given back is refused with `EBUSY`, and the one before holds: version 2 of
    /// the kernel's groups would kill instead.
    pub fn limit_memory(&self, limit: Option<u64>) -> Result<Enforcement, Error> {
        let Some((version, dir)) = self.find(Controller::Memory) else { return Ok(without_group(limit)) };
        if let (Some(limit), Some(held)) = (limit, held(version, dir))
            && held > limit
        {
            let busy = io::Error::from_raw_os_error(libc::EBUSY);
            return Err(Error::io("limit memory", format!("{limit} bytes, where {held} are held"), busy));
        }
        match version {
            Version::Two => {
                write(&dir.join("memory.max"), &or_max(limit))?;
                // No swap, so that the limit is the limit. Absent where the kernel has none.
                write_if_there(&dir.join("memory.swap.max"), limit.map_or("max", |_| "0"))?;
                if limit.is_some() {
                    write_if_there(&dir.join("memory.oom.group"), "0")?;
                }
            }
            Version::One => set_memory_v1(dir, limit)?,
        }
        Ok(with_group(limit))
    }

    /// Sets the processor limit, in thousandths of one processor; `None` takes it away.
    pub fn limit_cpu(&self, limit: Option<u32>) -> Result<Enforcement, Error> {
        let Some((version, dir)) = self.find(Controller::Cpu) else { return Ok(without_group(limit)) };
        let quota = limit.map(|milli| u64::from(milli) * CPU_PERIOD_US / 1000);
        match version {
            Version::Two => write(&dir.join("cpu.max"), &format!("{} {CPU_PERIOD_US}", or_max(quota)))?,
            Version::One => {
                let quota = quota.map_or_else(|| "-1".to_owned(), |quota| quota.to_string());
                let file = dir.join("cpu.cfs_quota_us");
                // A kernel without CFS bandwidth control has no such file: then there is no limit to claim.
                if !write_if_there(&file, &quota)? {
                    return Ok(without_group(limit));
                }
            }
        }
        Ok(with_group(limit))
    }

    /// Sets the limit on processes and threads; `None` takes it away. What runs above it runs on.
    pub fn limit_pids(&self, limit: Option<u32>) -> Result<Enforcement, Error> {
        let Some((_, dir)) = self.find(Controller::Pids) else { return Ok(without_group(limit)) };
        write(&dir.join("pids.max"), &or_max(limit.map(u64::from)))?;
        Ok(with_group(limit))
    }

    fn look_at_limits(&mut self) {
        let read = |controller, v2: &str, v1: &str, none: &[&str]| match self.find(controller) {
            Some((version, dir)) => {
                let file = dir.join(if matches!(version, Version::Two) { v2 } else { v1 });
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let text = text.split_whitespace().next().unwrap_or("max");
                if none.contains(&text) { Enforcement::None } else { Enforcement::Enforced }
            }
            None => Enforcement::None,
        };
        // Version 1 prints "no limit" as the biggest multiple of a page.
        let unlimited = (i64::MAX as u64 / 4096 * 4096).to_string();
        let memory = read(Controller::Memory, "memory.max", "memory.limit_in_bytes", &["max", &unlimited]);
        let cpu = read(Controller::Cpu, "cpu.max", "cpu.cfs_quota_us", &["max", "-1"]);
        let pids = read(Controller::Pids, "pids.max", "pids.max", &["max"]);
        (self.memory, self.cpu, self.pids) = (memory, cpu, pids);
    }
}

#[derive(Clone, Copy)]
pub(super) enum Version {
    One,
    Two,
}

/// Memory and memory-with-swap must be changed in the order that keeps the first not above the second.
/// Buffers of sockets have a count of their own here, without which one sandbox could take all that the whole machine
/// gives them (`net.ipv4.tcp_mem`); it takes the same limit.
fn set_memory_v1(dir: &Path, limit: Option<u64>) -> Result<(), Error> {
    let text = limit.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string());
    let files = ["memory.kmem.tcp.limit_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
    let files = files.map(|name| dir.join(name));
    let before = files.each_ref().map(|file| std::fs::read_to_string(file).ok());
    let [sockets, memory, swap] = &files;
    let set = || {
        write_if_there(sockets, &text)?;
        if write(memory, &text).is_ok() {
            // Absent where swap accounting is off. Refused while usage with swap is above it.
            write_if_there(swap, &text)?;
            return Ok(());
        }
        write_if_there(swap, &text)?;
        write(memory, &text)
    };
    set().inspect_err(|_| {
        // All as it was: raised from the outside in, lowered from the inside out, whichever way this went.
        for _ in 0..2 {
            for (file, before) in files.iter().zip(&before) {
                if let Some(before) = before {
                    let _ = write(file, before.trim());
                }
            }
        }
    })
}

/// Bytes that the group can't give back: all but the caches of files. `None` where that is not counted.
fn held(version: Version, dir: &Path) -> Option<u64> {
    let (current, prefix) = match version {
        Version::Two => ("memory.current", ""),
        Version::One => ("memory.usage_in_bytes", "total_"),
    };
    let current: u64 = std::fs::read_to_string(dir.join(current)).ok()?.trim().parse().ok()?;
    let stat = std::fs::read_to_string(dir.join("memory.stat")).ok()?;
    let cached = |name: &str| -> Option<u64> {
        let line = stat.lines().find_map(|line| line.strip_prefix(prefix)?.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(current.saturating_sub(cached("inactive_file ")? + cached("active_file ")?))
}

/// Enables what there is of `wanted` from the hierarchy's folder down to the parent of `dir`, and answers what got there.
fn hand_down(dir: &Path, wanted: &[Controller]) -> Result<Vec<Controller>, Error> {
    let (Some(folder), Some(top)) = (dir.parent(), dir.parent().and_then(Path::parent)) else {
        return Ok(Vec::new());
    };
    make_folder(folder)?;
    for place in [top, folder] {
        let file = place.join("cgroup.subtree_control");
        let now = std::fs::read_to_string(&file).unwrap_or_default();
        for controller in wanted {
            if !now.split_whitespace().any(|word| word == controller.name()) {
                // A refusal (processes in the folder, controller held by version 1) shows in what is read below.
                let _ = write(&file, &format!("+{}", controller.name()));
            }
        }
    }
    let now = std::fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
    let has = |c: &&Controller| now.split_whitespace().any(|word| word == c.name());
    Ok(wanted.iter().filter(has).copied().collect())
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    let mut made = std::fs::create_dir(dir);
    let missing = matches!(&made, Err(cause) if cause.kind() == io::ErrorKind::NotFound);
    if missing && let Some(folder) = dir.parent() {
        make_folder(folder)?;
        made = std::fs::create_dir(dir);
    }
    made.map_err(|cause| Error::io("make control group", dir.display().to_string(), cause))
}

/// The folder of all sandboxes, which another sandbox may be making at the same time.
fn make_folder(folder: &Path) -> Result<(), Error> {
    match std::fs::create_dir(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io("make control group", folder.display().to_string(), cause))
        }
        _ => Ok(()),
    }
}

fn check_id(id: &str) -> Result<(), Error> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !id.is_empty() && id.len() <= 128 && id.bytes().all(fine) {
        return Ok(());
    }
    Err(Error::reason("name control group", id, "an id has letters, digits, `-` and `_`, at most 128"))
}

fn with_group<T: Copy>(limit: Option<T>) -> Enforcement {
    if limit.is_some() { Enforcement::Enforced } else { Enforcement::None }
}

fn without_group<T: Copy>(limit: Option<T>) -> Enforcement {
    if limit.is_some() { Enforcement::Watched } else { Enforcement::None }
}

fn or_max(limit: Option<u64>) -> String {
    limit.map_or_else(|| "max".to_owned(), |limit| limit.to_string())
}

fn open(path: &Path, options: &OpenOptions) -> Result<File, Error> {
    options.open(path).map_err(|cause| Error::io("open control group", path.display().to_string(), cause))
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|cause| Error::io("write control group", path.display().to_string(), cause))
}

/// As [`write`]; `false` where there is no such file.
pub(super) fn write_if_there(path: &Path, text: &str) -> Result<bool, Error> {
    match write(path, text) {
        Ok(()) => Ok(true),
        Err(cause) if cause.is_not_found() => Ok(false),
        Err(cause) => Err(cause),
    }
}
