//! Appends events to an audit record, and tells each that stands there: `append FILE WRITER COUNT [SIZE KEEP]`. The tests of the record run it in many
//! processes at once.

use std::io::Write;
use std::process::ExitCode;

use sandbar_observe::{Actor, AuditConfig, AuditLog, Event, Role};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, writer, count, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: append FILE WRITER COUNT [SIZE KEEP]");
        return ExitCode::from(2);
    };
    let mut config = AuditConfig::new(file);
    if let [size, keep] = rest {
        config =
            config.with_max_bytes(size.parse().expect("a size")).with_keep(keep.parse().expect("a number"));
    }
    let log = match AuditLog::open(config) {
        Ok(log) => log,
        Err(error) => return fail(&error),
    };
    let mut out = std::io::stdout().lock();
    for number in 0..count.parse::<u64>().expect("a number") {
        let event = Event::note("test", "none", Actor::this_process(Role::Caller, Some(writer)))
            .with_detail("number", number)
            .with_detail("padding", "x".repeat(usize::try_from(number % 700).unwrap_or(0)));
        if let Err(error) = log.append(&event) {
            return fail(&error);
        }
        if writeln!(out, "{number}").and_then(|()| out.flush()).is_err() {
            // Nobody listens any more.
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::SUCCESS
}

fn fail(error: &sandbar_core::Error) -> ExitCode {
    println!("error {:?} {error}", error.kind());
    ExitCode::FAILURE
}
