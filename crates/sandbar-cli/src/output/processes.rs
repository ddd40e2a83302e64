use jiff::Timestamp;
use sandbar::{ProcessInfo, ProcessOrigin};
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::record::word;
use crate::output::time::{distance, rfc3339};

const HEADINGS: [&str; 8] = ["PID", "PARENT", "USER", "STATE", "AGE", "STARTED", "TAG", "COMMAND"];

/// Processes as a table for a person.
pub(crate) fn process_table(processes: &[ProcessInfo], now: Timestamp) -> String {
    let row = |process: &ProcessInfo| {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            process.pid.to_string(),
            or_dash(process.parent.map(|parent| parent.to_string())),
            or_dash(process.user.clone()),
            or_dash(process.state.map(|state| word(&state))),
            or_dash(process.started_at.map(|at| distance(at.min(now), now))),
            match process.origin {
                ProcessOrigin::Contract => "yes".to_owned(),
                ProcessOrigin::Inside => "-".to_owned(),
            },
            or_dash(process.tag.clone()),
            process.argv.join(" "),
        ]
    };
    let rows: Vec<_> = processes.iter().map(row).collect();
    columns(HEADINGS, &rows)
}

/// The form of decision 0004.
pub(crate) fn processes_json(processes: &[ProcessInfo], complete: bool) -> Value {
    let processes: Vec<_> = processes
        .iter()
        .map(|process| {
            // Taken apart in full, so that a new field does not compile until it has a key here.
            let ProcessInfo { pid, tag, argv, cwd, origin, parent, user, started_at, state, input } = process;
            json!({
                "pid": pid,
                "parent": parent,
                "user": user,
                "state": state,
                "started_at": started_at.map(rfc3339),
                "started": *origin == ProcessOrigin::Contract,
                "tag": tag,
                "cwd": cwd,
                "input": input,
                "argv": argv,
            })
        })
        .collect();
    json!({"version": 1, "complete": complete, "processes": processes})
}

#[cfg(test)]
mod tests {
    use sandbar::{ProcessInput, ProcessState};

    use super::*;

    fn process() -> ProcessInfo {
        ProcessInfo {
            parent: Some(3),
            user: Some("user".into()),
            state: Some(ProcessState::Stopped),
            started_at: Some("2024-05-06T07:08:09Z".parse().unwrap()),
            tag: Some("t\n".into()),
            input: Some(ProcessInput::Terminal),
            ..ProcessInfo::new(7, vec!["sh".into(), "-c".into(), "\x1b[2J".into()])
        }
    }

    #[test]
    fn what_comes_from_inside_is_escaped_for_a_person() {
        let now = "2024-05-06T07:09:09Z".parse().unwrap();
        let text = process_table(&[process(), ProcessInfo::new(8, vec!["x".into()])], now);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["7", "3", "user", "stopped", "1m", "yes", "t\\n", "sh", "-c", "\\u{1b}[2J"]
        );
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["8", "-", "-", "-", "-", "yes", "-", "x"]
        );
    }

    #[test]
    fn json_has_every_key_and_says_whether_it_is_whole() {
        let form = processes_json(&[ProcessInfo { origin: ProcessOrigin::Inside, ..process() }], false);
        assert_eq!(
            form,
            json!({"version": 1, "complete": false, "processes": [{
                "pid": 7, "parent": 3, "user": "user", "state": "stopped", "started_at": "2024-05-06T07:08:09.000Z",
                "started": false, "tag": "t\n", "cwd": null, "input": "terminal", "argv": ["sh", "-c", "\x1b[2J"],
            }]})
        );
    }
}
