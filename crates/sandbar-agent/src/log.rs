use std::fmt;
use std::io::Write;

/// Writes a line to the log pipe. Unlike `eprintln!` it takes no harm from a pipe that nobody reads any more: the
/// sandbox outlives the one who reads its log.
pub(crate) fn log(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("sandbar-agent: {text}\n").as_bytes());
}
