use std::fmt;
use std::str::FromStr;

/// A version of `envd`: what it can do goes by it, as in the official SDKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvdVersion(u64, u64, u64);

impl EnvdVersion {
    /// As new as the protocol that this client knows: what an agent is taken for that names no version.
    pub const LATEST: Self = Self(0, 6, 13);

    /// Folders below the watched one are watched.
    pub(super) fn watches_below(self) -> bool {
        self >= Self(0, 1, 4)
    }

    /// A process may be started without an open standard input.
    pub(super) fn closes_stdin_at_start(self) -> bool {
        self >= Self(0, 3, 0)
    }

    /// Whoever names no user gets the template's; before that, one has to be named.
    pub(super) fn has_default_user(self) -> bool {
        self >= Self(0, 4, 0)
    }

    /// The end of a standard input can be told.
    pub(super) fn closes_stdin(self) -> bool {
        self >= Self(0, 5, 2)
    }

    /// A file's bytes may be a request's body as they are.
    pub(super) fn takes_raw_uploads(self) -> bool {
        self >= Self(0, 5, 7)
    }
}

impl fmt::Display for EnvdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A text that is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoVersion;

impl fmt::Display for NoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a version: expected three numbers like 0.6.13")
    }
}

impl std::error::Error for NoVersion {}

impl FromStr for EnvdVersion {
    type Err = NoVersion;

    /// Semantic versions; what comes after `-` or `+` counts for nothing.
    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let numbers = text.split(['-', '+']).next().unwrap_or_default();
        let mut numbers = numbers.split('.').map(|number| {
            let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            if plain { number.parse::<u64>().map_err(|_| NoVersion) } else { Err(NoVersion) }
        });
        let mut next = || numbers.next().unwrap_or(Err(NoVersion));
        let version = Self(next()?, next()?, next()?);
        if numbers.next().is_some() { Err(NoVersion) } else { Ok(version) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gates_are_those_of_the_sdks() {
        let at = |text: &str| text.parse::<EnvdVersion>().unwrap();
        assert!(!at("0.1.3").watches_below() && at("0.1.4").watches_below());
        assert!(!at("0.2.4").closes_stdin_at_start() && at("0.3.0").closes_stdin_at_start());
        assert!(!at("0.3.9").has_default_user() && at("0.4.0").has_default_user());
        assert!(!at("0.5.1").closes_stdin() && at("0.5.2").closes_stdin());
        assert!(!at("0.5.6").takes_raw_uploads() && at("0.5.10").takes_raw_uploads());
        assert!(at("v1.0.0-dirty+1").takes_raw_uploads());
        for bad in ["", "1", "0.5", "0.5.x", "0.5.1.2", "0..1", "-0.5.1", "+1.0.0"] {
            assert!(bad.parse::<EnvdVersion>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn shown_and_read_again(a in any::<u32>(), b in any::<u32>(), c in any::<u32>(), garbage in ".{0,20}") {
            let version = EnvdVersion(a.into(), b.into(), c.into());
            prop_assert_eq!(version.to_string().parse(), Ok(version));
            let _ = garbage.parse::<EnvdVersion>();
        }
    }
}
