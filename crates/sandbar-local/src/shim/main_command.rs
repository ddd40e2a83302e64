use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sandbar_core::{ErrorKind, ExitStatus, LogChunk, LogEvent, LogStream, MainState, MainStatus, Result};
use sandbar_guest::{Operation, readable, refused};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::protocol::MainOrder;
use super::shared::Shared;
use crate::config::BACKEND;
use crate::ctl::{self, MainAnswer, Phase};
use crate::error::{fail, io_error};
use crate::home::{MainLog, now};

/// How long a question to the agent waits for something new.
const WAIT: Duration = Duration::from_secs(30);
/// How long the first start may take; what takes longer is a broken disk or a machine that swaps.
const START: Duration = Duration::from_secs(30);
/// How long the shim may take to have what the agent has.
const CATCH_UP: Duration = Duration::from_secs(10);
/// Pause after an agent that did not answer, or answered nothing new before its time.
const PAUSE: Duration = Duration::from_secs(1);
/// Most output that is taken, in bytes a second of what the log has of it: what it costs on the host is not within the sandbox' own limits.
const BYTES_PER_SECOND: u64 = 16 << 20;
/// What a piece counts beside its bytes: its line in the log has about as much around them.
const PIECE_COST: u64 = 64;
/// Least that an answer with anything new counts, however little it is: this makes 512 a second.
const ANSWER_COST: u64 = BYTES_PER_SECOND / 512;
/// Between two changes of the state that are taken, in the long run: each is a file written.
const STATE_EVERY: Duration = Duration::from_millis(250);
/// Changes of the state that are taken at once before that: a few quick restarts are told as they come.
const STATES_AT_ONCE: u32 = 16;
/// Pieces of one stream that were said within this are one: no reader of logs tells them apart.
const ONE_PIECE: Duration = Duration::from_millis(10);

/// Bytes of what it said last that are in an error.
const LAST_WORDS: u64 = 1 << 10;

/// Up to where the shim has what the agent has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of the next byte of output.
    from: u64,
    /// Version of the state.
    seen: u64,
}

/// What it is before the agent says anything of it.
pub(super) fn unstarted(order: &MainOrder) -> MainStatus {
    MainStatus {
        program: order.argv.first().cloned().unwrap_or_default(),
        restart: order.restart,
        state: MainState::Unknown,
        pid: None,
        started_at: None,
        restarts: 0,
        exit: None,
        next_start: None,
        problem: None,
    }
}

/// Waits until the main command of a new sandbox was started; if it can't be, there is to be no sandbox.
pub(super) async fn await_start(shared: &Shared) -> Result<()> {
    const CREATE: &str = "create";
    let end = Instant::now() + START;
    let mut seen = 0;
    while Instant::now() < end {
        let answer = match ctl::ask_main(&shared.folder, 0, seen, START).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => {
                return Err(fail(
                    ErrorKind::Unexpected,
                    CREATE,
                    format!("the agent has no main command: {why}"),
                ));
            }
            Err(failure) => {
                return Err(fail(ErrorKind::Unavailable, CREATE, format!("the main command: {failure}")));
            }
        };
        match answer.state {
            Phase::Starting => seen = answer.version,
            Phase::Failed => {
                return Err(match &answer.start_error {
                    Some(error) => refused(Operation::new(CREATE, BACKEND), error),
                    None => fail(ErrorKind::Unexpected, CREATE, "the main command was not started"),
                });
            }
            Phase::Running | Phase::BackingOff | Phase::Exited => {
                return note(shared, &answer).map_err(|cause| io_error(CREATE, "`record.json`", cause));
            }
        }
    }
    let message = format!("the main command was not started within {} s", START.as_secs());
    Err(fail(ErrorKind::Timeout, CREATE, message))
}

/// Keeps what the main command says, and how it is, as long as the shim lives.
pub(super) async fn follow(shared: Arc<Shared>) {
    let progress = &shared.main_progress;
    let mut log = loop {
        match MainLog::open(&shared.folder) {
            Ok(log) => break log,
            // A full disk, most likely. The agent keeps the last of it meanwhile.
            Err(_) => sleep(PAUSE).await,
        }
    };
    // The log has what was said before the sandbox was started again, too.
    let base = shared.look(|record| record.private.main_base);
    let mut at = Progress { from: log.next().saturating_sub(base), seen: 0 };
    let mut pace = Pace::new();
    progress.send_replace(at);
    loop {
        let begun = Instant::now();
        let Ok(Ok(answer)) = ctl::ask_main(&shared.folder, at.from, at.seen, WAIT).await else {
            sleep(PAUSE).await;
            continue;
        };
        let before = at;
        let is_other_state = answer.version != at.seen;
        let (events, next) = events(&answer, at.from);
        if !events.is_empty() {
            // What can't be written is lost, and that is said as soon as something can.
            if log
                .append(&shared.folder, &with_gap(log.next(), base.saturating_add(at.from), events))
                .is_err()
            {
                sleep(PAUSE).await;
            }
            at.from = next;
        }
        // An end is told once all that was said before it is kept; anything else must not wait for a command that never rests.
        let is_time = !answer.more || answer.state != Phase::Exited;
        if is_time && is_other_state && note(&shared, &answer).is_ok() {
            at.seen = answer.version;
        }
        progress.send_replace(at);
        if at == before && begun.elapsed() < WAIT {
            // Nothing new before its time is nothing that our agent says.
            sleep(PAUSE).await;
        }
        pace.keep(cost(&answer), at.seen != before.seen).await;
    }
}

/// Waits until the shim has what the agent had when this was called.
pub(super) async fn catch_up(shared: &Shared) -> Result<()> {
    const OPERATION: &str = "look at the main command";
    let late = |why: String| fail(ErrorKind::Unavailable, OPERATION, why);
    let mut progress = shared.main_progress.subscribe();
    let from = progress.borrow().from;
    let answer = match ctl::ask_main(&shared.folder, from, 0, Duration::ZERO).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => return Err(late(format!("the agent says: {why}"))),
        Err(failure) => return Err(late(format!("the agent does not answer: {failure}"))),
    };
    let has_it = |at: &Progress| at.from >= answer.next && at.seen >= answer.version;
    match timeout(CATCH_UP, progress.wait_for(has_it)).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(late(format!("its shim does not catch up within {} s", CATCH_UP.as_secs()))),
    }
}

/// How it ended, where it failed and will not be started again. What can't be found out is no failure.
pub(super) async fn failed(shared: &Shared) -> Option<ExitStatus> {
    let answer = last(shared, 0).await?;
    answer.exit.filter(|exit| answer.state == Phase::Exited && !exit.is_success())
}

/// The last that it said, for an error.
pub(super) async fn last_words(shared: &Shared) -> Option<String> {
    let answer = last(shared, LAST_WORDS).await?;
    let bytes: Vec<u8> = answer.pieces.iter().filter_map(ctl::Piece::bytes).flatten().collect();
    let words = readable(String::from_utf8_lossy(&bytes).trim());
    (!words.is_empty()).then_some(words)
}

/// How it is, with at most so many bytes of what it said last; nothing where there is none, or the agent does not say.
async fn last(shared: &Shared, bytes: u64) -> Option<MainAnswer> {
    shared.look(|record| record.main.is_some()).then_some(())?;
    let from = shared.main_progress.borrow().from;
    let answer = ctl::ask_main(&shared.folder, from, 0, Duration::ZERO).await.ok()?.ok()?;
    if bytes == 0 {
        return Some(answer);
    }
    let from = answer.next.saturating_sub(bytes);
    ctl::ask_main(&shared.folder, from, 0, Duration::ZERO).await.ok()?.ok()
}

/// What the agent said from byte `from` on, with its gaps, and the number of the next byte. What is not of the protocol is passed over.
fn events(answer: &MainAnswer, from: u64) -> (Vec<LogEvent>, u64) {
    let now = now();
    let mut next = from;
    let mut events = Vec::new();
    for piece in &answer.pieces {
        let Some(bytes) = piece.bytes().filter(|bytes| !bytes.is_empty()) else { continue };
        let Some(end) = piece.offset.checked_add(bytes.len() as u64) else { continue };
        if piece.offset < next {
            continue;
        }
        if piece.offset > next {
            events.push(LogEvent::Lost(piece.offset - next));
        }
        // Nothing was said later than now.
        let at = time(piece.at_ms).map_or(now, |at| at.min(now));
        match events.last_mut() {
            Some(LogEvent::Output(last)) if is_one(last, at, piece.stream) => {
                last.bytes = [&last.bytes[..], &bytes[..]].concat().into();
            }
            _ => events.push(LogEvent::Output(LogChunk { at, stream: piece.stream, bytes })),
        }
        next = end;
    }
    (events, next)
}

/// Whether what was said at `at`, right after `last`, belongs to it.
fn is_one(last: &LogChunk, at: Timestamp, stream: LogStream) -> bool {
    let between = at.duration_since(last.at).unsigned_abs();
    last.stream == stream && at >= last.at && between <= ONE_PIECE
}

/// What an answer costs here, in bytes.
fn cost(answer: &MainAnswer) -> u64 {
    let pieces = answer.pieces.iter().map(|piece| PIECE_COST + piece.encoded_len());
    pieces.sum::<u64>().max(ANSWER_COST)
}

/// Events that begin with byte `from`, for a log that ends before it: what is missing is lost.
fn with_gap(log: u64, from: u64, mut events: Vec<LogEvent>) -> Vec<LogEvent> {
    if from > log {
        events.insert(0, LogEvent::Lost(from - log));
    }
    events
}

/// Writes down how it is.
fn note(shared: &Shared, answer: &MainAnswer) -> std::io::Result<()> {
    let Some(known) = shared.look(|record| record.main.clone()) else { return Ok(()) };
    let status = MainStatus {
        state: match answer.state {
            Phase::Running => MainState::Running,
            Phase::BackingOff => MainState::BackingOff,
            Phase::Exited => MainState::Exited,
            Phase::Starting | Phase::Failed => MainState::Unknown,
        },
        pid: answer.pid.filter(|_| answer.state == Phase::Running),
        started_at: answer.started_ms.and_then(time),
        restarts: answer.restarts,
        exit: answer.exit,
        next_start: answer.next_ms.and_then(time).filter(|_| answer.state == Phase::BackingOff),
        problem: answer.problem.as_deref().map(readable),
        ..known.clone()
    };
    if status == known { Ok(()) } else { shared.update(|record| record.main = Some(status)) }
}

fn time(unix_ms: u64) -> Option<Timestamp> {
    i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// Holds output to [`BYTES_PER_SECOND`] and changes of the state to [`STATE_EVERY`]. What is more waits with the agent, which loses no state: it
/// tells the last one.
#[derive(Debug)]
struct Pace {
    output: Instant,
    state: Instant,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { output: now, state: now }
    }

    /// Waits until more is due after an answer of this cost, in bytes.
    async fn keep(&mut self, cost: u64, is_other_state: bool) {
        let due = self.due(Instant::now(), cost, is_other_state);
        sleep_until(due).await;
    }

    fn due(&mut self, now: Instant, cost: u64, is_other_state: bool) -> Instant {
        let cost = Duration::from_micros(cost.min(BYTES_PER_SECOND) * 1_000_000 / BYTES_PER_SECOND);
        self.output = self.output.max(now) + cost;
        if is_other_state {
            self.state = self.state.max(now) + STATE_EVERY;
        }
        // As many as may come at once are no reason to wait.
        let at_once = STATE_EVERY * STATES_AT_ONCE;
        let state = self.state.checked_sub(at_once).unwrap_or(now);
        self.output.max(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(pieces: &str) -> MainAnswer {
        serde_json::from_str(&format!(
            r#"{{"version":1,"state":"running","pid":2,"started_ms":null,"exit":null,"next_ms":null,"problem":null,
            "start_error":null,"pieces":{pieces}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn gaps_are_losses_and_nonsense_moves_nothing() {
        let from = |pieces: &str, from| {
            let (events, next) = events(&answer(pieces), from);
            let lost: u64 = events.iter().map(|e| if let LogEvent::Lost(n) = e { *n } else { 0 }).sum();
            (events.len(), lost, next)
        };
        assert_eq!(from(r#"[{"o":7,"t":1,"s":"stdout","d":"aGk="}]"#, 7), (1, 0, 9));
        assert_eq!(from(r#"[{"o":9,"t":1,"s":"stdout","d":"aGk="}]"#, 7), (2, 2, 11));
        for nonsense in [
            r#"[{"o":3,"t":1,"s":"stdout","d":"aGk="}]"#,
            r#"[{"o":7,"t":1,"s":"stdout","d":"?"}]"#,
            r#"[{"o":7,"t":1,"s":"stdout","d":""}]"#,
            r#"[{"o":18446744073709551615,"t":1,"s":"stdout","d":"aGk="}]"#,
        ] {
            assert_eq!(from(nonsense, 7), (0, 0, 7), "{nonsense}");
        }
        let (later, _) = events(&answer(r#"[{"o":0,"t":18446744073709551615,"s":"stdout","d":"aGk="}]"#), 0);
        assert!(matches!(&later[..], [LogEvent::Output(chunk)] if chunk.at <= now()), "{later:?}");
        assert_eq!(with_gap(3, 5, Vec::new()), [LogEvent::Lost(2)]);
    }

    #[test]
    fn neighbours_are_one_piece_and_others_are_not() {
        let chunks = |pieces: &str| -> Vec<Vec<u8>> {
            let (events, _) = events(&answer(pieces), 0);
            let bytes =
                |event| if let LogEvent::Output(chunk) = event { chunk.bytes.to_vec() } else { vec![] };
            events.into_iter().map(bytes).collect()
        };
        let piece = |o, t, s| format!(r#"{{"o":{o},"t":{t},"s":"{s}","d":"YQ=="}}"#);
        let two = |one: String, other: String| format!("[{one},{other}]");
        let first = || piece(0, 100, "stdout");
        assert_eq!(chunks(&two(first(), piece(1, 105, "stdout"))), [b"aa"]);
        assert_eq!(chunks(&two(first(), piece(1, 105, "stderr"))), [b"a", b"a"]);
        assert_eq!(chunks(&two(first(), piece(1, 111, "stdout"))), [b"a", b"a"]);
        assert_eq!(chunks(&two(first(), piece(1, 99, "stdout"))), [b"a", b"a"]);
        let gap: [&[u8]; 3] = [b"a", b"", b"a"];
        assert_eq!(chunks(&two(first(), piece(2, 105, "stdout"))), gap);
    }

    #[test]
    fn single_bytes_cost_what_they_make_of_lines() {
        let pieces: Vec<_> =
            (0..1000).map(|o| format!(r#"{{"o":{o},"t":{},"s":"stdout","d":"YQ=="}}"#, o * 1000)).collect();
        let answer = answer(&format!("[{}]", pieces.join(",")));
        assert!(cost(&answer) >= 64_000, "{}", cost(&answer));
        // A second of the least there is.
        let (begun, mut pace) = (Instant::now(), Pace::new());
        let last = (0..512).map(|_| pace.due(begun, ANSWER_COST, false)).last().unwrap();
        assert!(last.duration_since(begun) > Duration::from_millis(990), "{:?}", last - begun);
    }

    #[test]
    fn states_come_at_once_and_then_by_the_pace() {
        let (begun, mut pace) = (Instant::now(), Pace::new());
        let waits: Vec<_> = (0..STATES_AT_ONCE + 8).map(|_| pace.due(begun, 0, true) - begun).collect();
        assert!(waits[STATES_AT_ONCE as usize - 1] < Duration::from_millis(10), "{waits:?}");
        assert!(waits[STATES_AT_ONCE as usize + 7] >= STATE_EVERY * 7, "{waits:?}");
    }
}
