use crate::env::Environment;

/// The provider's URL: what was typed, else the environment, else this machine. A scheme alone, such as `local`, will do.
pub(crate) fn provider_url(typed: Option<&str>, env: &Environment) -> String {
    let url = typed.or(env.url.as_deref()).unwrap_or("local");
    if url.contains(':') { url.to_owned() } else { format!("{url}:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_beats_environment_beats_local() {
        let env = Environment { url: Some("local:/x".into()), ..Environment::default() };
        assert_eq!(provider_url(Some("e2b"), &env), "e2b:");
        assert_eq!(provider_url(None, &env), "local:/x");
        assert_eq!(provider_url(None, &Environment::default()), "local:");
    }
}
