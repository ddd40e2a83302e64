use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use sandbar::NamePattern;

use crate::value::ValueError;

/// `HOST=HEADER:SOURCE` of `--inject`, unread. Whoever misunderstands it types a secret here, and the parser of the command line shows what it
/// refuses, so it is read later.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InjectArg(String);

/// What an [`InjectArg`] says: not the value of the header, but where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inject {
    pub(crate) host: NamePattern,
    pub(crate) header: String,
    pub(crate) source: ValueSource,
}

/// Where the value of a header is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// In this variable of the caller's environment.
    Env(String),
    /// In this file.
    File(PathBuf),
}

/// What was expected.
const FORM: &str = "expected HOST=HEADER:SOURCE, where SOURCE is `env:NAME` or `@FILE`, as `api.example.com=authorization:env:API_KEY`";

impl FromStr for InjectArg {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for InjectArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InjectArg(..)")
    }
}

impl InjectArg {
    /// Reads it. An error shows nothing of what was typed before it is clear that no part is the value itself.
    pub(crate) fn read(&self) -> Result<Inject, ValueError> {
        let form = || ValueError::new(FORM);
        let (host, rest) = self.0.split_once('=').ok_or_else(form)?;
        let (header, source) = rest.split_once(':').ok_or_else(form)?;
        let source = match (source.strip_prefix("env:"), source.strip_prefix('@')) {
            (Some(name), _) if is_variable(name) => ValueSource::Env(name.to_owned()),
            (_, Some(path)) if !path.is_empty() => ValueSource::File(path.into()),
            _ => return Err(ValueError::new(format!("the value itself can't be given here: {FORM}"))),
        };
        Ok(Inject { host: NamePattern::parse(host)?, header: header.to_owned(), source })
    }
}

fn is_variable(name: &str) -> bool {
    let well_formed = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && well_formed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Inject, ValueError> {
        let Ok(arg) = text.parse::<InjectArg>();
        arg.read()
    }

    #[test]
    fn sources_are_told_apart() {
        let inject = read("API.example.com=Authorization:env:API_KEY").unwrap();
        assert_eq!(
            (inject.host.to_string(), inject.header),
            ("api.example.com".into(), "Authorization".into())
        );
        assert_eq!(inject.source, ValueSource::Env("API_KEY".into()));
        let inject = read("*.example.com=x-key:@/run/a=b:c").unwrap();
        assert_eq!(inject.source, ValueSource::File("/run/a=b:c".into()));
    }

    #[test]
    fn nothing_that_may_be_a_value_is_shown() {
        for text in [
            "hunter2",
            "hunter2==",
            "api.example.com=hunter2",
            "api.example.com=authorization:hunter2",
            "api.example.com=hunter2:hunter2",
            "api.example.com=authorization:Bearer hunter2",
            "api.example.com=authorization:env:hunter2 hunter2",
            "api.example.com=authorization:@",
            "authorization:hunter2=env:A",
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("`env:NAME` or `@FILE`") && !error.contains("hunter2"), "{text}: {error}");
            let Ok(arg) = text.parse::<InjectArg>();
            assert!(!format!("{arg:?}").contains("hunter2"));
        }
        assert!(read("a b=x:env:A").unwrap_err().to_string().contains("not a host name"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in "[a-z-]{1,12}", name in "[A-Z_][A-Z0-9_]{0,12}") {
            let inject = read(&format!("example.com={header}:env:{name}")).unwrap();
            prop_assert_eq!((inject.header, inject.source), (header, ValueSource::Env(name)));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,60}") {
            let _ = read(&text);
        }
    }
}
