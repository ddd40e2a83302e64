//! What a `Host` says: which sandbox and port, or that routing headers may be believed.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest id that is looked at, in bytes: what a label of a name may have.
const MAX_ID: usize = 63;

/// A `Host` without its port: a name in lower case, or what is in the brackets of an address.
pub(super) fn name_of(authority: &str) -> Option<String> {
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = if let Some(rest) = authority.strip_prefix('[') {
        rest.split_once(']')?.0
    } else {
        match authority.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return None,
            None => authority,
        }
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    (!name.is_empty()).then(|| name.to_ascii_lowercase())
}

/// Whether this is a name that nobody else can have: `localhost`, or an address.
pub(super) fn is_plain(name: &str) -> bool {
    name == "localhost" || name.parse::<Ipv4Addr>().is_ok() || name.parse::<Ipv6Addr>().is_ok()
}

/// The first label where the rest is `domain`.
pub(super) fn label_below<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let label = name.strip_suffix(domain)?.strip_suffix('.')?;
    (!label.is_empty() && !label.contains('.')).then_some(label)
}

/// The port and the id of a label `{port}-{id}`; `None` is one that is no such label.
pub(super) fn port_and_id(label: &str) -> Option<(u16, &str)> {
    let (port, id) = label.split_once('-')?;
    Some((self::port(port)?, self::id(id)?))
}

/// A port as a decimal number.
pub(super) fn port(text: &str) -> Option<u16> {
    let is_plain = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_plain && *port != 0)
}

/// An id as sandboxes have them.
pub(super) fn id(text: &str) -> Option<&str> {
    let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (!text.is_empty() && text.len() <= MAX_ID && text.bytes().all(is_valid)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_had_without_their_port() {
        let cases = [
            ("localhost:3000", "localhost"),
            ("LOCALHOST", "localhost"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:3000", "::1"),
            ("3000-sabc.sbx.test:8443", "3000-sabc.sbx.test"),
            ("x.test.:80", "x.test"),
            ("user@x.test", "x.test"),
        ];
        for (authority, name) in cases {
            assert_eq!(name_of(authority).as_deref(), Some(name), "{authority}");
        }
        for bad in ["", ":80", "[::1", "a:b", "a:80:x"] {
            assert_eq!(name_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn plain_names_are_nobody_else_s() {
        for plain in ["localhost", "127.0.0.1", "10.0.0.7", "::1"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in ["evil.test", "localhost.evil.test", "sandbox.evil.test", "127.0.0.1.evil.test"] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn labels_have_a_port_and_an_id() {
        assert_eq!(port_and_id("3000-sabc"), Some((3000, "sabc")));
        for bad in [
            "sabc", "-sabc", "0-sabc", "65536-s", "3000-", "3000-a-b", "3000-A", "+80-s", "080000-s",
            "3000-ä",
        ] {
            assert_eq!(port_and_id(bad), None, "{bad}");
        }
        assert_eq!(label_below("3000-s.sbx.test", "sbx.test"), Some("3000-s"));
        for other in ["sbx.test", "a.b.sbx.test", "3000-s.xsbx.test", ".sbx.test"] {
            assert_eq!(label_below(other, "sbx.test"), None, "{other}");
        }
    }
}
