use sandbar::Error;

use crate::env::Environment;
use crate::failure::{Failure, Result};

/// The provider's URL: what was typed, else the environment, else this machine. A scheme alone, such as `local`, will do.
pub(crate) fn provider_url(typed: Option<&str>, env: &Environment) -> Result<String> {
    let url = typed.or(env.url.as_deref()).unwrap_or("local");
    if url.trim().is_empty() {
        let error = Error::invalid("parse --provider", "it is empty: expected `local` or a URL");
        return Err(Failure::usage(error.with_hint("leave it out for the sandboxes of this machine")));
    }
    Ok(if url.contains(':') { url.to_owned() } else { format!("{url}:") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_beats_environment_beats_local() {
        let env = Environment { url: Some("local:/x".into()), ..Environment::default() };
        assert_eq!(provider_url(Some("e2b"), &env).unwrap(), "e2b:");
        assert_eq!(provider_url(None, &env).unwrap(), "local:/x");
        assert_eq!(provider_url(None, &Environment::default()).unwrap(), "local:");
    }

    #[test]
    fn an_empty_one_is_refused_as_such() {
        let failure = provider_url(Some(""), &Environment::default()).unwrap_err();
        assert!(failure.error.unwrap().to_string().contains("it is empty"));
    }
}
