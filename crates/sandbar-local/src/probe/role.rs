use std::ffi::OsString;
use std::io::{BufReader, stdin, stdout};

/// The first argument that makes the executable, started in a sandbox by the agent's path, the probe.
pub const PROBE_NAME: &str = "sandbar-probe";
/// The word for the neighbour's service, before its port and its token.
pub(crate) const LISTEN: &str = "listen";
/// Exit code of input that can't be read, as of any usage error of ours.
const USAGE: i32 = 2;

/// `main` of the probe: `args` without the program's and the role's name. Returns the exit code.
///
/// Without arguments it reads a list of attempts from its standard input and writes a line of JSON for each.
pub fn probe_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let done = match args.as_slice() {
        [] => super::work::serve(BufReader::new(stdin()), stdout()),
        [word, port, token] if word == LISTEN => {
            match (port.to_str().and_then(|port| port.parse().ok()), token.to_str()) {
                (Some(port), Some(token)) => super::listen::serve(port, token),
                _ => return USAGE,
            }
        }
        _ => return USAGE,
    };
    match done {
        Ok(()) => 0,
        Err(cause) => {
            eprintln!("{PROBE_NAME}: {cause}");
            USAGE
        }
    }
}
