use std::str::FromStr;

use crate::value::ValueError;

/// A signal by name or number. The numbers are Linux' on the architectures that this runs on (signal(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalArg(pub(crate) sandbar::Signal);

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

impl FromStr for SignalArg {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let known = NAMES.iter().find(|(known, number)| *known == name || number.to_string() == name);
        let (_, number) = known.ok_or_else(|| {
            ValueError::new("expected a signal's name or number, such as TERM, SIGKILL or 15")
        })?;
        Ok(Self(sandbar::Signal(*number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (text, number) in [("TERM", 15), ("SIGKILL", 9), ("sigusr1", 10), ("hup", 1), ("19", 19)] {
            assert_eq!(text.parse::<SignalArg>().unwrap().0.0, number, "{text}");
        }
        for bad in ["", "SIG", "0", "64", "-9", "SIGNOPE", "SIGSIGKILL"] {
            assert!(bad.parse::<SignalArg>().is_err(), "{bad}");
        }
    }
}
