use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json;

/// A signal to a process. E2B knows `SIGNAL_SIGTERM` and `SIGNAL_SIGKILL`; Sandbar's agent takes the other standard
/// signals too, by the same kind of name or by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signal(i32);

const NAMES: &[(&str, i32)] = &[
    ("SIGNAL_UNSPECIFIED", 0),
    ("SIGNAL_SIGHUP", 1),
    ("SIGNAL_SIGINT", 2),
    ("SIGNAL_SIGQUIT", 3),
    ("SIGNAL_SIGILL", 4),
    ("SIGNAL_SIGTRAP", 5),
    ("SIGNAL_SIGABRT", 6),
    ("SIGNAL_SIGBUS", 7),
    ("SIGNAL_SIGFPE", 8),
    ("SIGNAL_SIGKILL", 9),
    ("SIGNAL_SIGUSR1", 10),
    ("SIGNAL_SIGSEGV", 11),
    ("SIGNAL_SIGUSR2", 12),
    ("SIGNAL_SIGPIPE", 13),
    ("SIGNAL_SIGALRM", 14),
    ("SIGNAL_SIGTERM", 15),
    ("SIGNAL_SIGCHLD", 17),
    ("SIGNAL_SIGCONT", 18),
    ("SIGNAL_SIGSTOP", 19),
    ("SIGNAL_SIGTSTP", 20),
    ("SIGNAL_SIGTTIN", 21),
    ("SIGNAL_SIGTTOU", 22),
    ("SIGNAL_SIGURG", 23),
    ("SIGNAL_SIGXCPU", 24),
    ("SIGNAL_SIGXFSZ", 25),
    ("SIGNAL_SIGVTALRM", 26),
    ("SIGNAL_SIGPROF", 27),
    ("SIGNAL_SIGWINCH", 28),
    ("SIGNAL_SIGIO", 29),
    ("SIGNAL_SIGPWR", 30),
    ("SIGNAL_SIGSYS", 31),
];

impl Signal {
    /// SIGKILL.
    pub const KILL: Self = Self(9);
    /// SIGTERM.
    pub const TERM: Self = Self(15);
    /// SIGINT.
    pub const INT: Self = Self(2);
    /// SIGHUP.
    pub const HUP: Self = Self(1);

    /// The signal with that number on Linux; not checked.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Its number on Linux; 0 where none was named.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Whether it is a standard signal that a process can be sent.
    pub fn is_standard(self) -> bool {
        self.0 != 0 && NAMES.iter().any(|(_, number)| *number == self.0)
    }

    /// The signal as Go's `os` package names it in a status (`killed`), which SDKs show.
    pub const fn description(number: i32) -> &'static str {
        match number {
            1 => "hangup",
            2 => "interrupt",
            3 => "quit",
            4 => "illegal instruction",
            5 => "trace/breakpoint trap",
            6 => "aborted",
            7 => "bus error",
            8 => "floating point exception",
            9 => "killed",
            10 => "user defined signal 1",
            11 => "segmentation fault",
            12 => "user defined signal 2",
            13 => "broken pipe",
            14 => "alarm clock",
            15 => "terminated",
            24 => "CPU time limit exceeded",
            25 => "file size limit exceeded",
            31 => "bad system call",
            _ => "signal",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name.trim_start_matches("SIGNAL_")),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => serializer.serialize_str(name),
            None => serializer.serialize_i32(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::enumeration(deserializer, NAMES).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_the_same_signal() {
        for text in ["\"SIGNAL_SIGKILL\"", "9"] {
            assert_eq!(serde_json::from_str::<Signal>(text).unwrap(), Signal::KILL);
        }
        assert!(!serde_json::from_str::<Signal>("\"SIGNAL_NONSENSE\"").unwrap().is_standard());
        assert!(
            !Signal::new(16).is_standard() && !Signal::new(64).is_standard() && Signal::INT.is_standard()
        );
    }
}
