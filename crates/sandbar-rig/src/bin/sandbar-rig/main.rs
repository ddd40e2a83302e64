//! The rig's executable: `sandbar-rig run [--] CMD…`, and `sandbar-rig hosts` within it. The other roles are started by it.

mod authority;
mod capture;
mod connection;
mod control;
mod files;
mod hosts;
mod http;
mod init;
mod ledger;
mod network;
mod privilege;
mod resolver;
mod run;
mod serve;
mod state;
mod tcp;
mod udp;

use std::ffi::OsString;
use std::process::ExitCode;

use sandbar_rig::TIED;

const USAGE: &str = "usage: sandbar-rig run [--tied] [--] COMMAND [ARGUMENT...]\n       sandbar-rig hosts";
/// What could not be set up, as `EX_SOFTWARE` of sysexits.h.
const BROKEN: u8 = 70;
/// Wrong arguments.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (role, mut rest) = match arguments.split_first() {
        Some((role, rest)) => (role.to_str().unwrap_or_default(), rest.to_vec()),
        None => ("", Vec::new()),
    };
    let tied = role == "run" && rest.first().is_some_and(|word| word == TIED);
    if tied {
        rest.remove(0);
    }
    if role == "run" && rest.first().is_some_and(|word| word == "--") {
        rest.remove(0);
    }
    if role == "hosts" && rest.is_empty() {
        hosts::hosts();
        return ExitCode::SUCCESS;
    }
    if rest.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(WRONG);
    }
    let result = match role {
        "run" => run::run(&rest, if tied { run::Tie::Caller } else { run::Tie::None }),
        "init" => init::init(&rest),
        "serve" => serve::serve(&rest[0]).map(|()| 0),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(WRONG);
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("sandbar-rig: {why}");
            ExitCode::from(BROKEN)
        }
    }
}
