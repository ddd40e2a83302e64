//! Every environment variable that the command line itself reads, in one place.
//!
//! `SANDBAR_HOME` and `SANDBAR_HELPER` are the local backend's own and are read there.

use std::ffi::OsString;
use std::path::PathBuf;

/// Where sandboxes run, when `--provider` does not say.
pub(crate) const SANDBAR_URL: &str = "SANDBAR_URL";
/// Set and not empty: no colours (<https://no-color.org>).
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// `0`: no colours (<https://bixense.com/clicolors>).
pub(crate) const CLICOLOR: &str = "CLICOLOR";
/// `dumb` is a terminal that can't move its cursor: no progress display.
pub(crate) const TERM: &str = "TERM";

/// Where what is done is recorded, when `--audit` does not say.
pub(crate) const SANDBAR_AUDIT: &str = "SANDBAR_AUDIT";
/// Who logs in at a registry of images.
pub(crate) const SANDBAR_REGISTRY_USER: &str = "SANDBAR_REGISTRY_USER";
/// With which password or token.
pub(crate) const SANDBAR_REGISTRY_PASSWORD: &str = "SANDBAR_REGISTRY_PASSWORD";
/// Who acts, for the record.
pub(crate) const SANDBAR_ACTOR: &str = "SANDBAR_ACTOR";
/// The trace that this belongs to, when `--traceparent` does not say.
pub(crate) const TRACEPARENT: &str = "TRACEPARENT";
/// What vendors pass along with it.
pub(crate) const TRACESTATE: &str = "TRACESTATE";
/// Where spans go, in a build that can send them; what else there is to say of it is read by the exporter.
pub(crate) const OTLP_ENDPOINTS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];

/// What the environment said when the command line started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) url: Option<String>,
    pub(crate) audit: Option<String>,
    pub(crate) actor: Option<String>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    /// Whether spans are to be sent, and this build can do that.
    pub(crate) exports_spans: bool,
    /// `XDG_STATE_HOME`, if it is absolute, as its specification demands.
    pub(crate) state_home: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) no_color: bool,
    pub(crate) dumb_terminal: bool,
    /// What a program needs to know of the caller's terminal: name and value.
    pub(crate) terminal: Vec<(&'static str, String)>,
}

impl Environment {
    /// User and password for a registry of images. Read where it is used, so that it lies nowhere else.
    pub(crate) fn registry_login() -> Option<(String, String)> {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Some((text(SANDBAR_REGISTRY_USER)?, text(SANDBAR_REGISTRY_PASSWORD)?))
    }

    pub(crate) fn read() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let text = |name: &str| set(name).map(|value| value.to_string_lossy().into_owned());
        Self {
            url: text(SANDBAR_URL),
            audit: text(SANDBAR_AUDIT),
            actor: text(SANDBAR_ACTOR),
            traceparent: text(TRACEPARENT),
            tracestate: text(TRACESTATE),
            exports_spans: cfg!(feature = "otlp")
                && OTLP_ENDPOINTS.into_iter().any(|name| set(name).is_some()),
            state_home: set("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()),
            home: set("HOME").map(PathBuf::from),
            no_color: set(NO_COLOR).is_some() || set(CLICOLOR).is_some_and(|value| value == "0"),
            dumb_terminal: set(TERM).is_some_and(|term| term == "dumb"),
            terminal: terminal(|name| set(name).and_then(|value| value.into_string().ok())),
        }
    }
}

/// The terminal's kind where nobody says: what all that draw on screens understand.
const USUAL_TERM: &str = "xterm";
/// A language that every system knows, with an encoding that every terminal has.
const USUAL_LANG: &str = "C.UTF-8";

/// What counts for the encoding of text comes first (locale(7)).
fn terminal(set: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    let lang = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(&set);
    let mut vars = vec![
        (TERM, set(TERM).unwrap_or_else(|| USUAL_TERM.to_owned())),
        ("LANG", lang.unwrap_or_else(|| USUAL_LANG.to_owned())),
    ];
    vars.extend(set("COLORTERM").map(|value| ("COLORTERM", value)));
    vars
}

/// The caller's own value of a variable that `-e NAME` asks for. An empty value is a value.
pub(crate) fn callers(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_described_by_what_counts() {
        assert_eq!(terminal(|_| None), [("TERM", "xterm".to_owned()), ("LANG", "C.UTF-8".to_owned())]);
        let set = |name: &str| match name {
            "TERM" => Some("tmux-256color".to_owned()),
            "LC_CTYPE" => Some("de_DE.UTF-8".to_owned()),
            "LANG" => Some("C".to_owned()),
            "COLORTERM" => Some("truecolor".to_owned()),
            _ => None,
        };
        let vars = terminal(set);
        assert_eq!(vars[0].1, "tmux-256color");
        assert_eq!(vars[1], ("LANG", "de_DE.UTF-8".to_owned()));
        assert_eq!(vars[2].1, "truecolor");
    }
}
