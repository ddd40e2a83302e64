use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandbar_wire::envd::{Channel, EndEvent, RpcError};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::Main;
use super::ring::Piece;
use super::status::Phase;

/// Longest wait for something new; the host side asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Most encoded bytes of output in an answer: with the rest it fits in a packet of 64 KiB.
const ANSWER_BYTES: usize = 48 << 10;
/// What a piece costs in an answer beside its bytes.
const PIECE_COST: usize = 80;
/// Longest text about a problem, in characters.
const MAX_TEXT: usize = 500;

/// What there is from byte `from` on, and how the main command is. Waits at most `wait` until there is something that whoever asks has not seen.
pub(crate) async fn answer(main: &Main, from: u64, seen: u64, wait: Duration) -> Value {
    let limit = Instant::now() + wait.min(LONGEST_WAIT);
    main.note_follower(from);
    loop {
        let changed = main.changed.notified();
        if main.ring.borrow().next() > from || main.version() != seen {
            break;
        }
        if timeout_at(limit, changed).await.is_err() {
            break;
        }
    }
    // A long wait is no absence.
    main.note_follower(from);
    form(main, from)
}

fn form(main: &Main, from: u64) -> Value {
    let state = main.state();
    let ring = main.ring.borrow();
    let mut pieces = Vec::new();
    let mut room = ANSWER_BYTES;
    let mut more = false;
    for piece in ring.from(from) {
        // Base64 makes four of three.
        let most = room.saturating_sub(PIECE_COST) / 4 * 3;
        if most == 0 {
            more = true;
            break;
        }
        let cut = piece.bytes.len().min(most);
        more = cut < piece.bytes.len();
        room = room.saturating_sub(PIECE_COST + cut.div_ceil(3) * 4);
        pieces.push(encoded(&piece, cut));
        if more {
            break;
        }
    }
    let (word, pid, next_ms, error) = match &state.phase {
        Phase::Starting => ("starting", None, None, None),
        Phase::Failed(error) => {
            let error = RpcError { message: short(&error.message), ..error.clone() };
            ("failed", None, None, Some(error))
        }
        Phase::Running(pid) => ("running", Some(*pid), None, None),
        Phase::BackingOff(at) => ("backing_off", None, Some(*at), None),
        Phase::Exited => ("exited", None, None, None),
    };
    json!({
        "ok": true,
        "version": main.version(),
        "state": word,
        "pid": pid,
        "started_ms": state.started_ms,
        "restarts": state.restarts,
        "exit": state.end.as_ref().map(exit),
        "next_ms": next_ms,
        "problem": state.problem.as_deref().map(short),
        "start_error": error,
        "pieces": pieces,
        "more": more,
        "next": ring.next(),
    })
}

fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn encoded(piece: &Piece, cut: usize) -> Value {
    json!({
        "o": piece.offset,
        "t": piece.at_ms,
        "s": if piece.channel == Channel::Stderr { "stderr" } else { "stdout" },
        "d": STANDARD.encode(&piece.bytes[..cut]),
    })
}

fn exit(end: &EndEvent) -> Value {
    match (end.exited, end.signal) {
        (true, _) => json!({"code": end.exit_code}),
        (false, Some(signal)) => json!({"signal": signal}),
        (false, None) => json!("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::config::MainConfig;

    #[test]
    fn an_answer_fits_in_a_packet_whatever_was_said() {
        static BIG: [u8; 64 << 10] = [255; 64 << 10];
        for size in [1, 100, 3000, BIG.len()] {
            let main = Main::new(MainConfig::default());
            let (mut said, mut at) = (0, u64::MAX >> 1);
            while said < 250 << 10 {
                main.ring.borrow_mut().push(at, Channel::Stderr, Bytes::from_static(&BIG[..size]));
                said += size + 64;
                // Far enough from each other to be pieces.
                at += 1000;
            }
            main.change(|now| now.problem = Some("\u{1}".repeat(10_000)));
            let mut from = main.ring.borrow().from(0).next().map_or(0, |piece| piece.offset);
            loop {
                let form = form(&main, from);
                assert!(form.to_string().len() < 64 << 10, "{size}: {}", form.to_string().len());
                let pieces = form["pieces"].as_array().unwrap();
                assert!(!pieces.is_empty(), "{size}: no progress at {from}");
                for piece in pieces {
                    assert_eq!(piece["o"], from);
                    from += STANDARD.decode(piece["d"].as_str().unwrap()).unwrap().len() as u64;
                }
                if form["more"] == false {
                    assert_eq!(form["next"], from);
                    break;
                }
            }
        }
    }
}
