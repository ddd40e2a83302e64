//! What the command line itself prints: errors, records, tables, progress. What a command in a sandbox prints is not touched here.

mod audit;
mod changes;
mod columns;
mod decision;
mod disk;
mod doctor;
mod error;
mod escape;
mod policy;
mod processes;
mod progress;
mod record;
mod stats;
mod table;
mod template;
mod time;
mod usage;
mod verdict;
mod volume;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::env::Environment;
use crate::failure::{Failure, Result};

pub(crate) use audit::audit_text;
pub(crate) use changes::ChangeLine;
pub(crate) use columns::columns;
pub(crate) use decision::{DecisionJson, decision_text, verdict_word};
pub(crate) use disk::{disk_json, disk_table, prune_json, prune_text, store_json, store_text};
pub(crate) use doctor::{DoctorJson, doctor_text};
pub(crate) use escape::escape;
pub(crate) use policy::{NetworkJson, network_text};
pub(crate) use processes::{process_table, processes_json};
pub(crate) use record::{RecordJson, describe, limits};
pub(crate) use stats::{Measured, StatsJson, short_size, stats_table};
pub(crate) use table::table;
pub(crate) use template::{
    details_json, details_text, template_json, template_table, template_text, templates_json,
};
pub(crate) use time::rfc3339;
pub(crate) use usage::{UsageJson, usage_table};
pub(crate) use verdict::{VerdictJson, verdict_text};
pub(crate) use volume::{VolumesJson, volume_json, volume_table, volume_text};

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Printer {
    format: Format,
    detail: Detail,
    /// What standard error is; `None` if it is no terminal.
    terminal: Option<Terminal>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Detail {
    #[default]
    Usual,
    Verbose,
}

#[derive(Clone, Copy, Debug)]
struct Terminal {
    color: bool,
    /// Whether a line can be written over.
    moves: bool,
}

impl Printer {
    pub(crate) fn new(json: bool, verbose: bool, env: &Environment) -> Self {
        let terminal = Terminal { color: !env.no_color && !env.dumb_terminal, moves: !env.dumb_terminal };
        Self {
            format: if json { Format::Json } else { Format::Text },
            detail: if verbose { Detail::Verbose } else { Detail::Usual },
            terminal: io::stderr().is_terminal().then_some(terminal),
        }
    }

    pub(crate) fn json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints a line on standard error for a person who watches: only on a terminal, or if asked to be verbose.
    pub(crate) fn note(self, text: &str) {
        if (self.terminal.is_some() || self.detail == Detail::Verbose) && !self.json() {
            say(text);
        }
    }

    /// A page of text that takes the place of the one before: the whole screen where standard output is a terminal, else a paragraph.
    pub(crate) fn screen(self, page: &str) -> String {
        let moves = self.terminal.is_none_or(|terminal| terminal.moves);
        if moves && io::stdout().is_terminal() { format!("\x1b[H\x1b[2J{page}") } else { format!("{page}\n") }
    }

    /// Prints a line on standard error if asked to be verbose.
    pub(crate) fn detail(self, text: impl FnOnce() -> String) {
        if self.detail == Detail::Verbose {
            say(&text());
        }
    }

    /// Prints a line on standard error about something that went wrong with the command, not with us.
    pub(crate) fn warn(self, text: &str) {
        if !self.json() {
            say(text);
        }
    }
}

/// Prints a line on standard error that nobody may miss, whatever the form of the output.
pub(crate) fn tell(text: &str) {
    say(text);
}

fn say(text: &str) {
    // Nobody can be told that standard error is broken.
    let _ = writeln!(io::stderr().lock(), "sandbar: {}", escape(text));
}

/// Prints one JSON value on a line of standard output.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(value).expect("own types always serialise");
    text.push(b'\n');
    print_bytes(&text)
}

/// Prints one line on standard output.
pub(crate) fn print_line(text: &str) -> Result<()> {
    print_bytes(format!("{text}\n").as_bytes())
}

/// Prints one JSON value on standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).expect("own types always serialise");
    text.push(b'\n');
    print_bytes(&text)
}

pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::output)
}
