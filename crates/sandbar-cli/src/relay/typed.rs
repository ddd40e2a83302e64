use std::cell::RefCell;
use std::convert::Infallible;
use std::io::Write;

use bytes::BytesMut;
use sandbar::ProcessControl;
use tokio::sync::Notify;

use crate::failure::{Failure, Result};
use crate::relay::input::Fed;
use crate::stdio::Source;
use crate::terminal::{Key, Keys, Screen};

/// Most bytes that wait for a command that does not read. Beyond that the terminal holds the rest back; up to there our own keys are seen
/// whatever the command does.
const WAITING: usize = 1 << 20;

/// What was typed and is not yet handed over.
#[derive(Default)]
struct Waiting {
    bytes: RefCell<BytesMut>,
    more: Notify,
    less: Notify,
}

/// Passes what is typed to the command's terminal. Reading goes on while the command does not read, so that the keys by which one leaves it
/// are seen. Ends without a failure where the terminal is gone.
pub(super) async fn pass(source: &Source, keys: Keys, control: &dyn ProcessControl) -> Result<Fed> {
    let waiting = Waiting::default();
    tokio::select! {
        fed = read(source, keys, &waiting) => fed,
        never = hand_over(&waiting, control) => match never {},
    }
}

async fn read(source: &Source, mut keys: Keys, waiting: &Waiting) -> Result<Fed> {
    loop {
        while waiting.bytes.borrow().len() >= WAITING {
            waiting.less.notified().await;
        }
        let typed = match source.read().await {
            // Whoever was at the terminal hung up; a signal says so too, unless it is ignored.
            Ok(bytes) if bytes.is_empty() => return Ok(Fed::HungUp),
            Err(error) if error.raw_os_error() == Some(EIO) => return Ok(Fed::HungUp),
            read => read.map_err(Failure::input)?,
        };
        let (bytes, key) = keys.take(typed);
        waiting.bytes.borrow_mut().extend_from_slice(&bytes);
        waiting.more.notify_one();
        match key {
            Some(Key::Detach) => return Ok(Fed::Detach),
            Some(Key::Suspend) => Screen::suspend(),
            // Nobody can be told that standard error is broken.
            Some(Key::Help) => drop(std::io::stderr().lock().write_all(keys.help().as_bytes())),
            None => {}
        }
    }
}

/// The number of `EIO`: what a read of a terminal that hung up answers.
const EIO: i32 = 5;

/// What a command does not take, because it is gone or out of reach, is dropped: what becomes of it is told by its events, and until then our own
/// keys count.
async fn hand_over(waiting: &Waiting, control: &dyn ProcessControl) -> Infallible {
    let mut is_open = true;
    loop {
        let bytes = waiting.bytes.take().freeze();
        if bytes.is_empty() {
            waiting.more.notified().await;
            continue;
        }
        waiting.less.notify_one();
        is_open = is_open && control.write(bytes).await.is_ok();
    }
}
