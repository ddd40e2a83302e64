use std::io::{BufRead as _, Read as _, Write as _, stdin, stdout};

use sandbar_core::ErrorKind;
use sandbar_engine::worker::{MAX_DESCRIPTORS, take_descriptors};

use super::job::{Failure, Line, MAX_LINE, Order, VERSION};
use super::serve;
use crate::error::{ErrorForm, fail};

/// `main` of the worker, for an executable that was started under the name `sandbar-worker`. Returns the exit code.
pub fn worker_main() -> i32 {
    // Modes are set as they have to be; until then nobody else is let in.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let line = match work() {
        Ok(report) => Line::Done(report),
        Err(failure) => Line::Failed(ErrorForm::from(&fail(failure.kind, "work", failure.message))),
    };
    i32::from(!say(&line))
}

fn work() -> Result<super::Report, Failure> {
    let strange = |why: String| Failure::new(ErrorKind::Protocol, format!("the job can't be read: {why}"));
    let mut line = Vec::new();
    let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    stdin().lock().take(limit).read_until(b'\n', &mut line).map_err(|cause| strange(cause.to_string()))?;
    let order: Order = serde_json::from_slice(&line).map_err(|cause| strange(cause.to_string()))?;
    if order.v != VERSION {
        return Err(strange(format!("it has version {}, this executable knows {VERSION}", order.v)));
    }
    let count = order.job.descriptors();
    let given = if count <= MAX_DESCRIPTORS { take_descriptors(count) } else { None };
    let given = given.ok_or_else(|| strange(format!("it comes without its {count} descriptors")))?;
    serve::run(&order.job, given, &mut |progress| {
        say(&Line::Progress(progress));
    })
}

/// `false` means that nobody reads it any more.
fn say(line: &Line) -> bool {
    let Ok(mut text) = serde_json::to_vec(line) else { return false };
    text.push(b'\n');
    let mut output = stdout().lock();
    output.write_all(&text).and_then(|()| output.flush()).is_ok()
}
