use std::ffi::OsString;

use sandbar::{Command, EnvVars, Error, SpawnOptions, StdinMode};

use crate::args::ProcessArgs;
use crate::failure::{Failure, Result};
use crate::settings::{Caller, ProcessSettings, TerminalSettings};
use crate::terminal::{is_terminal, size};

/// Where no command is given: a login shell, the best that there is.
const SHELLS: [&str; 2] = ["bash", "/bin/sh"];

pub(super) fn resolve(
    args: ProcessArgs,
    env: EnvVars,
    words: Vec<OsString>,
    caller: Caller<'_>,
) -> Result<ProcessSettings> {
    let ProcessArgs { user, workdir, interactive, tty, escape_char, timeout } = args;
    let commands = if words.is_empty() {
        SHELLS.map(|shell| Command::new(shell).arg("-l")).to_vec()
    } else {
        vec![Command::from_argv(words).map_err(Failure::usage)?]
    };
    let timeout = timeout.map(|duration| duration.0);
    let mut spawn = SpawnOptions {
        cwd: workdir,
        env,
        user,
        timeout,
        stdin: if interactive { StdinMode::Open } else { StdinMode::Null },
        ..SpawnOptions::new()
    };
    let terminal = if tty {
        check_terminal(caller)?;
        spawn.pty = Some(size());
        for (name, value) in &caller.env.terminal {
            if spawn.env.get(name).is_none() {
                spawn.env.insert(*name, value).map_err(Failure::usage)?;
            }
        }
        Some(TerminalSettings { escape: escape_char.unwrap_or_default() })
    } else {
        None
    };
    Ok(ProcessSettings { commands, spawn, timeout, terminal })
}

/// Whether a terminal can be handed to a command.
fn check_terminal(caller: Caller<'_>) -> Result<()> {
    if caller.global.json {
        let error =
            Error::invalid("parse arguments", "what a command does to a terminal can't be told as JSON");
        return Err(Failure::usage(
            error.with_hint("leave out `--json`, or run it without a terminal: `exec` without `-T`"),
        ));
    }
    if !is_terminal() {
        let error = Error::invalid(
            "parse arguments",
            "standard input is not a terminal, and a terminal was asked for",
        );
        let hint = "run it from a terminal, or without one: `exec` without `-T`, and with `-i` to pass standard input";
        return Err(Failure::usage(error.with_hint(hint)));
    }
    Ok(())
}
