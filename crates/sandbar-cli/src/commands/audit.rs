use std::io;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbar::observe::{AuditReader, Line};
use sandbar::{Error, ErrorKind, Follow};

use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, audit_text, print_bytes, tell};
use crate::settings::AuditSettings;

/// How often to look for more while following. People don't notice it, and an idle look is one system call.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes gathered before they are printed: a pipe's worth.
const BATCH: usize = 64 << 10;

/// Prints the record. Ends at its end, or when it is interrupted, or when nobody reads any more.
pub(crate) fn audit(settings: &AuditSettings, printer: Printer) -> Result<ExitStatus> {
    let mut reader = open(settings)?;
    let mut notes = Notes::default();
    loop {
        let mut out = Vec::new();
        while out.len() < BATCH {
            let Some(line) = reader.next_line().map_err(|cause| unreadable(settings, cause))? else { break };
            notes.take(&line);
            if concerns(&line, settings.id.as_deref()) {
                print(&line, printer, &mut out);
            }
        }
        if !out.is_empty() {
            print_bytes(&out)?;
        } else if settings.follow == Follow::No {
            if let Some(line) = reader.torn_end() {
                notes.take(&line);
            }
            notes.tell();
            return Ok(ExitStatus::Done);
        } else {
            notes.tell();
            pause()?;
        }
    }
}

/// Waits for the next look, or until nobody reads any more what is printed.
fn pause() -> Result<()> {
    let stdout = io::stdout();
    // No event is asked for: an error, which is what a pipe without a reader has, is told all the same.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let look = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
    let end = Instant::now() + LOOK;
    if matches!(poll(&mut fds, Some(&look)), Ok(1..)) && fds[0].revents().contains(PollFlags::ERR) {
        return Err(Failure::output(io::ErrorKind::BrokenPipe.into()));
    }
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    Ok(())
}

fn open(settings: &AuditSettings) -> Result<AuditReader> {
    loop {
        match AuditReader::open(&settings.path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && settings.follow == Follow::Yes => {
                pause()?;
            }
            opened => return opened.map_err(|cause| unreadable(settings, cause)),
        }
    }
}

fn unreadable(settings: &AuditSettings, cause: io::Error) -> Failure {
    let kind = match cause.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Unavailable,
    };
    let error = Error::new(kind, "audit", format!("`{}` can't be read: {cause}", settings.path.display()));
    let error = error.with_resource("audit record").with_source(cause);
    match kind {
        ErrorKind::NotFound => Failure::usage(
            error.with_hint("a record is kept where `--audit FILE` or `SANDBAR_AUDIT` asks for it"),
        ),
        _ => error.into(),
    }
}

fn concerns(line: &Line, id: Option<&str>) -> bool {
    let Some(wanted) = id else { return true };
    line.event().and_then(|event| event.sandbox.as_ref()).is_some_and(|id| id.as_str().starts_with(wanted))
}

fn print(line: &Line, printer: Printer, out: &mut Vec<u8>) {
    let text = match line {
        Line::Event(_, value) | Line::Later(value) if printer.json() => {
            sandbar::observe::to_safe_json(value).expect("a value always serialises")
        }
        Line::Event(event, _) => audit_text(event),
        Line::Later(value) => {
            format!("an event of a later version: {}", crate::output::escape(&value.to_string()))
        }
        _ => return,
    };
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// What there is to say of the record itself.
#[derive(Debug, Default)]
struct Notes {
    torn: usize,
    gaps: usize,
    lost: u64,
}

impl Notes {
    fn take(&mut self, line: &Line) {
        match line {
            Line::Torn(_) => self.torn += 1,
            Line::Gap => self.gaps += 1,
            Line::Event(event, _) if event.op == "lost" => {
                let lost = event.detail.get("events").and_then(serde_json::Value::as_u64);
                self.lost = self.lost.saturating_add(lost.unwrap_or(0));
            }
            _ => {}
        }
    }

    fn tell(&mut self) {
        let Self { torn, gaps, lost } = std::mem::take(self);
        if torn > 0 {
            tell(&format!("{torn} lines are torn: their writers were killed, or they are no events"));
        }
        if gaps > 0 {
            tell("files of the record made way before they were read: events are missing here");
        }
        if lost > 0 {
            tell(&format!("{lost} events could not be written at their time"));
        }
    }
}
