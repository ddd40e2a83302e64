//! The table of all processes, which the agent does not have: it lists those that it started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{ExitStatus, ProcessInfo, ProcessOrigin, Processes, Result};

use super::EnvdClient;
use super::script::Script;
use crate::processes::{bounded, short, state_of};

const LIST: &str = "list processes";
/// How long the table may take: a thousand processes take about a second.
const BOUND: Duration = Duration::from_secs(30);
/// Most bytes of the table: about ten thousand processes.
const MOST: usize = 16 << 20;
/// Ticks of a process' start in a second: what every Linux tells programs (`USER_HZ`).
const TICKS: i64 = 100;
/// The agent's own name.
const AGENT: &str = "envd";
/// Prints, of each process, its number, the kernel's line, its user and its arguments in hexadecimal; before that who users are, when the kernel booted
/// and who prints this.
const TABLE: &str = r#"
{ while IFS=: read -r name _ id _; do echo "w $id $name"; done </etc/passwd; } 2>/dev/null
{ while read -r word value; do [ "$word" = btime ] && echo "b $value"; done </proc/stat; } 2>/dev/null
echo "s $$"
for entry in /proc/[0-9]*; do
  pid=${entry#/proc/}
  { IFS= read -r line <$entry/stat; } 2>/dev/null || continue
  echo "p $pid"
  printf 'k %s\n' "$line"
  { while read -r word id _; do [ "$word" = Uid: ] && echo "u $id"; done <$entry/status; } 2>/dev/null
  od -An -v -tx1 -N4096 $entry/cmdline 2>/dev/null
done
:
"#;

impl EnvdClient {
    pub(super) async fn table(&self) -> Result<Vec<ProcessInfo>> {
        let operation = self.guest.operation(LIST);
        let started = self.guest.list().await?;
        let script = Script::new(TABLE, Vec::new(), BOUND).with_kept(MOST);
        let done = self.script(script, operation).await?;
        if done.status != ExitStatus::Code(0) || done.stdout.len() >= MOST {
            return Err(done.failed("read the table of processes inside", operation));
        }
        Ok(rows(&done.stdout, &started))
    }
}

#[derive(Default)]
struct Row {
    pid: u32,
    line: String,
    uid: Option<String>,
    argv: Vec<u8>,
}

/// Reads what [`TABLE`] prints.
pub(super) fn rows(text: &[u8], started: &[ProcessInfo]) -> Vec<ProcessInfo> {
    let text = String::from_utf8_lossy(text);
    let (mut users, mut booted, mut own) = (BTreeMap::new(), None, None);
    let mut rows: Vec<Row> = Vec::new();
    for line in text.lines() {
        match (line.split_once(' '), rows.last_mut()) {
            (Some(("w", rest)), None) => {
                if let Some((id, name)) = rest.split_once(' ') {
                    users.entry(id.to_owned()).or_insert_with(|| name.to_owned());
                }
            }
            (Some(("b", rest)), None) => booted = rest.parse::<i64>().ok(),
            (Some(("s", rest)), None) => own = rest.parse::<u32>().ok(),
            (Some(("p", rest)), _) => {
                if let Ok(pid) = rest.parse() {
                    rows.push(Row { pid, ..Row::default() });
                }
            }
            (Some(("k", rest)), Some(row)) => rest.clone_into(&mut row.line),
            (Some(("u", rest)), Some(row)) => row.uid = Some(rest.to_owned()),
            (Some(("", _)), Some(row)) => row.argv.extend(bytes(line)),
            _ => {}
        }
    }
    let shown: BTreeSet<u32> =
        rows.iter().filter(|row| Some(row.pid) != own && !is_of_the_place(row)).map(|row| row.pid).collect();
    rows.into_iter()
        .filter(|row| shown.contains(&row.pid))
        .map(|row| info(row, &users, booted, &shown, started))
        .collect()
}

/// Whether it belongs to the place and not to whoever uses the sandbox: its first process, the kernel's threads, the agent.
fn is_of_the_place(row: &Row) -> bool {
    let parent = fields(&row.line).and_then(|fields| fields.get(1).and_then(|id| id.parse::<u32>().ok()));
    row.pid <= 2 || parent == Some(2) || name(&row.line) == Some(AGENT)
}

fn name(line: &str) -> Option<&str> {
    line.get(line.find('(')? + 1..line.rfind(')')?)
}

/// What comes after the name: the state first.
fn fields(line: &str) -> Option<Vec<&str>> {
    Some(line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().collect())
}

fn bytes(line: &str) -> impl Iterator<Item = u8> + '_ {
    line.split_ascii_whitespace().map_while(|pair| u8::from_str_radix(pair, 16).ok())
}

fn info(
    row: Row,
    users: &BTreeMap<String, String>,
    booted: Option<i64>,
    shown: &BTreeSet<u32>,
    started: &[ProcessInfo],
) -> ProcessInfo {
    let fields = fields(&row.line).unwrap_or_default();
    let mut argv: Vec<String> = row
        .argv
        .strip_suffix(b"\0")
        .unwrap_or(&row.argv)
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if row.argv.is_empty() {
        argv = name(&row.line).map(|name| vec![format!("[{name}]")]).unwrap_or_default();
    }
    let known = started.iter().find(|process| process.pid == row.pid);
    let ticks = fields.get(19).and_then(|ticks| ticks.parse::<i64>().ok());
    let started_at = booted.zip(ticks).and_then(|(booted, ticks)| {
        Timestamp::from_millisecond(booted.checked_mul(1000)?.checked_add(ticks.checked_mul(1000 / TICKS)?)?)
            .ok()
    });
    ProcessInfo {
        tag: known.and_then(|known| known.tag.clone()),
        cwd: known.and_then(|known| known.cwd.clone()),
        origin: if known.is_some() { ProcessOrigin::Contract } else { ProcessOrigin::Inside },
        parent: fields.get(1).and_then(|id| id.parse().ok()).filter(|id| shown.contains(id)),
        user: row.uid.map(|id| short(users.get(&id).cloned().unwrap_or(id))),
        started_at,
        state: fields.first().and_then(|state| state.chars().next()).and_then(state_of),
        ..ProcessInfo::new(row.pid, bounded(argv))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sandbar_core::ProcessState;

    use super::*;

    #[test]
    fn a_table_is_read() {
        let text = b"w 0 root\nw 1000 user\nb 1000\ns 9\np 1\nk 1 (init) S 0 1 1\np 7\nk 7 (a (b) c) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 9 10 11 12 500 0\nu 1000\n 73 6c 65 65 70 00 36 30\n 00\np 8\nk 8 (sh) Z 7 8\nu 77\np 9\nk 9 (sh) R 1 9\np 10\nk 10 (envd) S 1 1\n";
        let mut known = ProcessInfo::new(7, Vec::new());
        known.tag = Some("mine".into());
        let rows = rows(text, &[known]);
        assert_eq!(rows.iter().map(|row| row.pid).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(rows[0].argv, ["sleep", "60"]);
        assert_eq!((rows[0].user.as_deref(), rows[0].tag.as_deref()), (Some("user"), Some("mine")));
        assert_eq!(rows[0].started_at, Timestamp::from_millisecond(1_005_000).ok());
        assert_eq!((rows[0].parent, rows[0].origin), (None, ProcessOrigin::Contract));
        assert_eq!((rows[1].parent, rows[1].state), (Some(7), Some(ProcessState::Ended)));
        assert_eq!(
            (rows[1].user.as_deref(), rows[1].argv.as_slice()),
            (Some("77"), &["[sh]".to_owned()][..])
        );
    }

    proptest! {
        #[test]
        fn garbage_is_bounded(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = rows(&bytes, &[]);
            let _ = rows(&[b"p 7\nk 7 (", &bytes[..]].concat(), &[]);
        }
    }
}
