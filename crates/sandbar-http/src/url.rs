//! Addresses as they may be shown.

use reqwest::Url;
use sandbar_core::{Error, Result};

/// Reads an address. One that carries credentials is refused: they would be in every log of every proxy on the way.
pub(crate) fn parse(operation: &'static str, text: &str) -> Result<Url> {
    let url = Url::parse(text).map_err(|error| {
        Error::invalid(operation, format!("the address of the request is no URL: {error}"))
            .with_hint("it is `http://` or `https://`, a host, and a path")
    })?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(Error::invalid(
            operation,
            format!(
                "the address of the request begins with `{}:`, where it has to be `http:` or `https:`",
                url.scheme()
            ),
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::invalid(operation, "the address of the request has credentials in it")
            .with_hint("give them as a key or token, which is sent as a header"));
    }
    Ok(url)
}

/// An address without credentials and without the values of its query, any of which may be a signature.
pub(crate) fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let mut shown = format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default());
    shown.push_str(url.path());
    let mut separator = '?';
    for (name, _) in url.query_pairs() {
        shown.push(separator);
        shown.push_str(&name.chars().filter(|c| !c.is_control()).collect::<String>());
        shown.push_str("=..");
        separator = '&';
    }
    shown
}

/// The host and port of an address, as errors of connecting name them.
pub(crate) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_address_is_refused_by_name() {
        for text in ["", "example.com", "ftp://example.com/", "file:///etc/passwd", "http://"] {
            assert_eq!(parse("list", text).unwrap_err().operation(), "list", "{text:?}");
        }
        let error = parse("list", "https://me:hunter2hunter2@example.com/").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn values_of_a_query_are_not_shown() {
        let url = Url::parse("https://u:p@example.com:8443/files?path=/a&signature=v1_abc#frag").unwrap();
        assert_eq!(shown(&url), "https://example.com:8443/files?path=..&signature=..");
        assert_eq!(place(&url), "example.com:8443");
    }

    proptest! {
        #[test]
        fn no_value_of_any_query_is_shown(names in prop::collection::vec("[a-z]{1,6}", 1..5), value in "[A-Z0-9]{12,40}") {
            let query: Vec<_> = names.iter().map(|name| format!("{name}={value}")).collect();
            let url = Url::parse(&format!("https://{value}:{value}@example.com/p?{}", query.join("&"))).unwrap();
            prop_assert!(!shown(&url).contains(&value));
        }
    }
}
