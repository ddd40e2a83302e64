use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use sandbar::EnvVars;

use crate::value::ValueError;

/// `KEY=VALUE`, or `KEY` alone for the caller's own value. `Debug` shows the name only, since values are often secrets.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EnvArg {
    pub(crate) name: String,
    /// `None`: take it from the caller's environment.
    pub(crate) value: Option<String>,
}

impl FromStr for EnvArg {
    type Err = Infallible;

    /// Only splits. The parser of the command line shows what it refuses, and this may be a secret, so checks come later.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        Ok(Self { name: name.to_owned(), value })
    }
}

impl fmt::Debug for EnvArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvArg({})", self.name)
    }
}

/// Adds the variables of an environment file: `KEY=VALUE` lines, empty lines, `#` comments, nothing else. An error names the line and never a
/// value.
pub(crate) fn parse_env_file(content: &[u8], into: &mut EnvVars) -> Result<(), ValueError> {
    for (index, line) in content.split(|b| *b == b'\n').enumerate() {
        let complain = |why: &str| ValueError::new(format!("line {}: {why}", index + 1));
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| complain("not UTF-8"))?;
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        // A line without `=` may be a value that lost its name, so it is not shown.
        let (name, value) = line.split_once('=').ok_or_else(|| complain("no `=`: expected KEY=VALUE"))?;
        let well_formed = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !well_formed {
            return Err(complain(
                "the name before `=` is not valid: expected letters, digits and `_`, not starting with a digit",
            ));
        }
        into.insert(name, value).map_err(|error| complain(error.message()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_alone_asks_for_the_callers_value() {
        let arg: EnvArg = "HOME".parse().unwrap();
        assert_eq!(arg, EnvArg { name: "HOME".into(), value: None });
        let arg: EnvArg = "A=b=c".parse().unwrap();
        assert_eq!(arg.value.as_deref(), Some("b=c"));
        assert_eq!("A=".parse::<EnvArg>().unwrap().value.as_deref(), Some(""));
    }

    #[test]
    fn debug_shows_no_value() {
        assert_eq!(format!("{:?}", "TOKEN=hunter2".parse::<EnvArg>().unwrap()), "EnvArg(TOKEN)");
    }

    #[test]
    fn files_hold_lines_comments_and_nothing_that_expands() {
        let mut env = EnvVars::new();
        parse_env_file(b"# a comment\n\nA=1\r\n  # another\nB='x' $A # kept\nC=\n", &mut env).unwrap();
        let pairs: Vec<_> = env.iter().collect();
        assert_eq!(pairs, [("A", "1"), ("B", "'x' $A # kept"), ("C", "")]);
    }

    #[test]
    fn an_error_names_the_line_and_never_the_value() {
        for content in [
            &b"A=1\nhunter2\n"[..],
            b"A=1\nexport B=hunter2",
            b"A=1\nB=hunter2\0",
            b"A=1\n1B=hunter2",
            b"A=1\nB=\xffhunter2",
            b"A=1\nhunter2 hunter2=x",
        ] {
            let error = parse_env_file(content, &mut EnvVars::new()).unwrap_err().to_string();
            assert!(error.starts_with("line 2: ") && !error.contains("hunter2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_file_or_an_error(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_env_file(&content, &mut EnvVars::new());
        }

        #[test]
        fn values_come_back_as_they_stand(value in "[^\0\r\n]{0,40}") {
            let mut env = EnvVars::new();
            parse_env_file(format!("A={value}\n").as_bytes(), &mut env).unwrap();
            prop_assert_eq!(env.get("A"), Some(value.as_str()));
        }
    }
}
