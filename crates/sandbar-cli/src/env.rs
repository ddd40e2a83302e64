//! Every environment variable that the command line itself reads, in one place.
//!
//! `SANDBAR_HOME` and `SANDBAR_HELPER` are the local backend's own and are read there.

use std::ffi::OsString;

/// Where sandboxes run, when `--provider` does not say.
pub(crate) const SANDBAR_URL: &str = "SANDBAR_URL";
/// Set and not empty: no colours (<https://no-color.org>).
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// `0`: no colours (<https://bixense.com/clicolors>).
pub(crate) const CLICOLOR: &str = "CLICOLOR";
/// `dumb` is a terminal that can't move its cursor: no progress display.
pub(crate) const TERM: &str = "TERM";

/// What the environment said when the command line started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) url: Option<String>,
    pub(crate) no_color: bool,
    pub(crate) dumb_terminal: bool,
    /// What a program needs to know of the caller's terminal: name and value.
    pub(crate) terminal: Vec<(&'static str, String)>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            url: set(SANDBAR_URL).map(|url| url.to_string_lossy().into_owned()),
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
