//! Whether a process that was started is still there, by its identity.

use std::time::Duration;

use sandbar_core::UserName;
use sandbar_wire::envd::{Empty, ListResponse};

use super::EnvdClient;
use super::script::Script;
use super::settle::Life;
use crate::operation::Operation;

/// How long a look may take; one that takes longer found nothing out. The reference's own.
const LOOK: Duration = Duration::from_secs(10);
/// Prints the kernel's line of process `$1`, or a word why there is none. A process that may not be looked at is there.
const STAT: &str = r#"
if { IFS= read -r line; } 2>/dev/null </proc/$1/stat; then printf 'stat %s\n' "$line"
elif [ -e /proc/$1 ]; then echo hidden
elif [ -e /proc/1 ]; then echo gone
fi 2>/dev/null
"#;

/// Who a process is, beyond its number, which others may have later: when the kernel started it, in ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

/// What the kernel says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It runs, or waits.
    There(Identity),
    /// It ended, and nobody asked how yet.
    Ended,
    /// There is no such process.
    Nothing,
    /// Nobody could tell.
    Unsure,
}

impl EnvdClient {
    /// Looks for a process. `known` is who it was at the last look.
    pub(super) async fn look(
        &self,
        pid: u32,
        user: Option<&UserName>,
        known: Option<Identity>,
        operation: Operation,
    ) -> (Life, Option<Identity>) {
        let looking = async {
            // Whom the agent does not list any more it has waited for. Whom it lists may have ended under a stream that is held.
            let list =
                self.guest.call::<ListResponse>("/process.Process/List", &Empty {}, None, operation).await;
            if let Ok(Ok(list)) = &list
                && !list.processes.iter().any(|process| process.pid == pid)
            {
                return Seen::Nothing;
            }
            // Where there is no room for another process, it is asked again later.
            self.stat(pid, user, operation).await.map_or(Seen::Unsure, |text| seen(&text))
        };
        let seen = tokio::time::timeout(LOOK, looking).await.unwrap_or(Seen::Unsure);
        judge(seen, known)
    }

    async fn stat(
        &self,
        pid: u32,
        user: Option<&UserName>,
        operation: Operation,
    ) -> sandbar_core::Result<Vec<u8>> {
        let script = Script::new(STAT, vec![pid.to_string()], LOOK).with_user(user);
        Ok(self.script(script, operation).await?.stdout.to_vec())
    }
}

fn judge(seen: Seen, known: Option<Identity>) -> (Life, Option<Identity>) {
    match (seen, known) {
        (Seen::There(now), Some(before)) if now != before => (Life::Gone, known),
        (Seen::There(now), _) => (Life::Alive, Some(now)),
        (Seen::Ended | Seen::Nothing, _) => (Life::Gone, known),
        (Seen::Unsure, _) => (Life::Alive, known),
    }
}

/// Reads what [`STAT`] prints.
fn seen(text: &[u8]) -> Seen {
    let Ok(text) = std::str::from_utf8(text) else { return line(text) };
    match text.trim_end_matches('\n') {
        "gone" => Seen::Nothing,
        _ => line(text.as_bytes()),
    }
}

/// The line of proc(5)'s `stat`: number, name in parentheses (which may hold anything), state, and as the 22nd field when it was started.
fn line(text: &[u8]) -> Seen {
    let Some(text) = text.strip_prefix(b"stat ") else { return Seen::Unsure };
    let Some(close) = text.iter().rposition(|byte| *byte == b')') else { return Seen::Unsure };
    let Ok(rest) = std::str::from_utf8(&text[close + 1..]) else { return Seen::Unsure };
    let mut fields = rest.split_ascii_whitespace();
    match fields.next() {
        Some("Z" | "X" | "x") => Seen::Ended,
        // The state is the third field.
        Some(_) => match fields.nth(18).and_then(|ticks| ticks.parse().ok()) {
            Some(ticks) => Seen::There(Identity(ticks)),
            None => Seen::Unsure,
        },
        None => Seen::Unsure,
    }
}

/// Only its word for it and the kernel's letters for it are an end.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn check(text: &[u8]) {
    if judge(seen(text), None).0 == Life::Gone {
        let has = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
        assert!(
            text.starts_with(b"gone")
                || (text.starts_with(b"stat ") && (has(b"Z") || has(b"X") || has(b"x")))
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stat(name: &str, state: char, started: u64) -> Vec<u8> {
        let fields = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18";
        format!("stat 42 ({name}) {state} {fields} {started} 99 100\n").into_bytes()
    }

    #[test]
    fn a_process_is_there_until_it_ended_or_is_another() {
        let known = Some(Identity(77));
        assert_eq!(judge(seen(&stat("sleep", 'S', 77)), known), (Life::Alive, known));
        assert_eq!(judge(seen(&stat("sleep", 'S', 77)), None), (Life::Alive, known));
        assert_eq!(judge(seen(&stat("sleep", 'Z', 77)), known).0, Life::Gone);
        assert_eq!(judge(seen(&stat("other", 'R', 78)), known).0, Life::Gone);
        assert_eq!(judge(seen(b"gone\n"), known).0, Life::Gone);
    }

    #[test]
    fn what_is_not_certain_is_alive() {
        for text in
            [&b""[..], b"hidden\n", b"gone for lunch", b"stat 42 (a", b"stat 42 (a) S 1 2", b"stat 42 (a)"]
        {
            assert_eq!(judge(seen(text), Some(Identity(1))).0, Life::Alive, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn its_name_says_nothing(name in "[ -~]{0,20}", started in any::<u64>()) {
            prop_assert_eq!(seen(&stat(&name, 'R', started)), Seen::There(Identity(started)));
            prop_assert_eq!(seen(&stat(&name, 'Z', started)), Seen::Ended);
        }

        #[test]
        fn garbage_is_never_an_end(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assume!(!bytes.starts_with(b"gone") && !bytes.contains(&b'Z') && !bytes.contains(&b'X') && !bytes.contains(&b'x'));
            prop_assert_eq!(judge(seen(&bytes), None).0, Life::Alive);
        }
    }
}
