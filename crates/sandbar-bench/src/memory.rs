use std::collections::BTreeMap;
use std::fs;

/// Names under which the executable's roles show in the list of processes.
const SHIM: &[u8] = b"sandbar-shim\0";
const AGENT: &[u8] = b"sandbar-agent\0";

/// Bytes that a sandbox of this process keeps in memory, shared pages counted in parts: its shim, a child of ours, and its agent, a child of that.
/// The next sandbox, which the provider keeps prepared, is one like the others here; a shim without an agent is counted to all.
pub(crate) fn per_sandbox(sandboxes: usize) -> Result<f64, String> {
    let processes = table()?;
    let me = i32::try_from(std::process::id()).map_err(|why| why.to_string())?;
    let of = |parent: i32, name: &'static [u8]| {
        processes.iter().filter(move |(pid, above)| *above == parent && is(*pid, name)).map(|(pid, _)| *pid)
    };
    let (mut bytes, mut agents) = (0, 0);
    for shim in of(me, SHIM) {
        bytes += proportional(shim)?;
        for agent in of(shim, AGENT) {
            bytes += proportional(agent)?;
            agents += 1;
        }
    }
    if agents != sandboxes && agents != sandboxes + 1 {
        return Err(format!("{agents} agents were found of {sandboxes}"));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
    Ok(bytes as f64 / agents as f64)
}

/// The most memory that processes of a piece of work had at once, each at its own moment: those that are looked at until it ends.
#[derive(Debug, Default)]
pub(crate) struct Peak(BTreeMap<i32, u64>);

impl Peak {
    /// Looks at these processes below this one.
    pub(crate) fn look(&mut self, is_meant: impl Fn(i32) -> bool) -> Result<(), String> {
        let parents: BTreeMap<i32, i32> = table()?.into_iter().collect();
        let me = i32::try_from(std::process::id()).map_err(|why| why.to_string())?;
        let is_below = |pid: i32| {
            std::iter::successors(parents.get(&pid), |above| parents.get(above)).any(|above| *above == me)
        };
        for pid in parents.keys().copied().filter(|pid| is_below(*pid) && is_meant(*pid)) {
            // One that is ending has none any more.
            let Some(bytes) = high_water(pid) else { continue };
            let most = self.0.entry(pid).or_default();
            *most = bytes.max(*most);
        }
        Ok(())
    }

    /// The sum of them, in MiB.
    #[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
    pub(crate) fn mib(&self) -> f64 {
        self.0.values().sum::<u64>() as f64 / 1_048_576.0
    }

    /// How many they were.
    pub(crate) fn processes(&self) -> usize {
        self.0.len()
    }
}

/// Whether a process has this name.
pub(crate) fn has_name(pid: i32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

fn high_water(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

/// Every process with its parent.
fn table() -> Result<Vec<(i32, i32)>, String> {
    let entries = fs::read_dir("/proc").map_err(|why| why.to_string())?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    Ok(pids
        .filter_map(|pid| {
            // A process that ended since is no process.
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let rest = text.rsplit_once(')')?.1;
            Some((pid, rest.split_ascii_whitespace().nth(1)?.parse().ok()?))
        })
        .collect())
}

fn is(pid: i32, name: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == name)
}

fn proportional(pid: i32) -> Result<u64, String> {
    let file = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&file).map_err(|why| format!("{file}: {why}"))?;
    let line =
        text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no PSS in the kernel's table")?;
    let kib: u64 =
        line.trim().trim_end_matches(" kB").parse().map_err(|why| format!("{file}: `{line}`: {why}"))?;
    Ok(kib << 10)
}
