use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use sandbar_engine::process::signal_below;
use sandbar_wire::envd::{Code, ProcessRow, ProcessTable, RpcError, Signal, SignalAnyRequest, StartedRow};

use crate::blocking;
use crate::state::State;
use crate::users::Names;

/// Bytes of program and arguments that are shown of each process: what fills a wide terminal many times.
const MAX_COMMAND: u64 = 4096;
/// Bytes of the kernel's other texts about a process; they are some hundred.
const MAX_TEXT: u64 = 16 << 10;
/// Ticks in a second of the times in `stat` (`USER_HZ`, the same on every architecture that this runs on).
const TICKS: i64 = 100;

/// Every process but our own: this one, and the commands' small parents.
pub(crate) async fn list_all(state: &State) -> Result<ProcessTable, RpcError> {
    let mut started: BTreeMap<u32, StartedRow> = state.registry.started();
    let stubs = stubs(state);
    let etc = state.config.etc.clone();
    let rows = blocking::run(move || read(&stubs, &etc)).await?;
    let mut processes =
        rows.map_err(|error| RpcError::new(Code::Internal, format!("read the process table: {error}")))?;
    for row in &mut processes {
        row.started = started.remove(&row.pid);
    }
    Ok(ProcessTable { processes })
}

/// Signals any process that [`list_all`] shows.
pub(crate) fn signal_any(state: &State, request: &SignalAnyRequest) -> Result<(), RpcError> {
    let SignalAnyRequest { pid, signal, tree } = *request;
    let absent = || RpcError::new(Code::NotFound, format!("process with pid {pid} not found"));
    let failed = |error: &dyn std::fmt::Display| {
        RpcError::new(Code::Internal, format!("signal process {pid}: {error}"))
    };
    if !signal.is_standard() {
        return Err(RpcError::new(Code::Unimplemented, format!("signal {signal} is not supported")));
    }
    if tree && let Ok(process) = state.registry.running(&sandbar_wire::envd::ProcessSelector::pid(pid)) {
        return process.signal(signal);
    }
    let number = i32::try_from(pid).map_err(|_| absent())?;
    let mut spared = stubs(state);
    spared.push(std::process::id().cast_signed());
    if number <= 1 || spared.contains(&number) || !is_below_us(number) {
        return Err(absent());
    }
    if tree {
        return match signal_below(number, signal.number(), &spared) {
            Ok(0) => Err(absent()),
            Ok(_) => Ok(()),
            Err(error) => Err(failed(&error)),
        };
    }
    alone(number, signal).map_err(
        |error| {
            if error == rustix::io::Errno::SRCH { absent() } else { failed(&error) }
        },
    )
}

fn alone(pid: i32, signal: Signal) -> rustix::io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?;
    let signal = rustix::process::Signal::from_named_raw(signal.number()).ok_or(rustix::io::Errno::INVAL)?;
    kill_process(pid, signal)
}

fn stubs(state: &State) -> Vec<i32> {
    state.registry.trees().iter().map(|tree| tree.stub()).collect()
}

/// PID 1 of a sandbox is above all that there is. Elsewhere there are others that are none of our business.
fn is_below_us(pid: i32) -> bool {
    let own = std::process::id().cast_signed();
    let mut here = pid;
    while own != 1 && here != own {
        match stat(here) {
            Some(stat) if stat.parent > 1 => here = stat.parent,
            _ => return false,
        }
    }
    true
}

fn read(stubs: &[i32], etc: &Path) -> io::Result<Vec<ProcessRow>> {
    let names = Names::load(etc);
    let booted = booted_unix_ms();
    let own = std::process::id().cast_signed();
    let mut rows = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid == own || stubs.contains(&pid) || !is_below_us(pid) {
            continue;
        }
        // One that ended in between is no error.
        let Some(stat) = stat(pid) else { continue };
        let argv = argv(pid).unwrap_or_else(|| vec![format!("[{}]", stat.name)]);
        let parent = (stat.parent > 1 && stat.parent != own && !stubs.contains(&stat.parent))
            .then(|| stat.parent.cast_unsigned());
        rows.push(ProcessRow {
            pid: pid.cast_unsigned(),
            parent,
            user: user_id(pid).map(|id| names.user(id)),
            state: Some(stat.state),
            started_unix_ms: booted.map(|booted| booted + stat.started_ticks * 1000 / TICKS),
            argv,
            started: None,
        });
    }
    rows.sort_by_key(|row| row.pid);
    Ok(rows)
}

/// When the machine was started, as processes count it.
fn booted_unix_ms() -> Option<i64> {
    let since_boot = clock_gettime(ClockId::Boottime);
    let since_boot = since_boot.tv_sec * 1000 + since_boot.tv_nsec / 1_000_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(i64::try_from(now).ok()? - since_boot)
}

struct Stat {
    name: String,
    state: char,
    parent: i32,
    started_ticks: i64,
}

fn text_of(pid: i32, file: &str, limit: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::open(format!("/proc/{pid}/{file}")).ok()?.take(limit).read_to_end(&mut text).ok()?;
    Some(text)
}

fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&text_of(pid, "stat", MAX_TEXT)?)
}

/// The name stands in parentheses and may hold anything, also parentheses.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let begin = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(text.get(begin + 1..end)?).into_owned();
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let started_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat { name, state, parent, started_ticks })
}

/// Program and arguments; none of one that has ended.
fn argv(pid: i32) -> Option<Vec<String>> {
    let text = text_of(pid, "cmdline", MAX_COMMAND)?;
    let words = text.strip_suffix(b"\0").unwrap_or(&text);
    if words.is_empty() {
        return None;
    }
    Some(words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The effective user. Who owns the folder in `/proc` is not always it (proc(5)).
fn user_id(pid: i32) -> Option<u32> {
    let text = text_of(pid, "status", MAX_TEXT)?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let text = b"42 (a) S 7 (b)) T 3 42 42 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 777 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(
            (stat.name.as_str(), stat.state, stat.parent, stat.started_ticks),
            ("a) S 7 (b)", 'T', 3, 777)
        );
        assert!(parse_stat(b"42 (a) S 7").is_none() && parse_stat(b"").is_none());
    }

    #[test]
    fn this_process_is_read_as_it_is() {
        let pid = std::process::id().cast_signed();
        let stat = stat(pid).unwrap();
        assert_eq!(stat.parent, std::os::unix::process::parent_id().cast_signed());
        let started = booted_unix_ms().unwrap() + stat.started_ticks * 1000 / TICKS;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let age = i64::try_from(now).unwrap() - started;
        assert!((-1000..3_600_000).contains(&age), "{age}");
        assert_eq!(user_id(pid), Some(rustix::process::geteuid().as_raw()));
        assert!(argv(pid).is_some());
    }
}
