mod hostnames;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Result;

fn name(text: &str) -> Hostname {
    Hostname::parse(text).unwrap()
}

#[test]
fn names_have_one_form() {
    for (text, expected) in [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("日本。example", "xn--wgv71a.example"),
        ("localhost", "localhost"),
        ("a1.2b.c3", "a1.2b.c3"),
        ("0x1.example", "0x1.example"),
    ] {
        assert_eq!(name(text).as_str(), expected, "{text}");
    }
    // Cyrillic `а` is another letter than Latin `a`.
    assert_ne!(name("аpple.test"), name("apple.test"));
}

#[test]
fn what_is_no_name_is_refused() {
    let long_label = format!("{}.test", "a".repeat(64));
    let long_name = vec!["a".repeat(49); 6].join(".");
    for text in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.test..",
        "a b.test",
        "a\0.test",
        "allowed.test\0.evil.test",
        "a\n.test",
        "a\u{7f}.test",
        "a_b.test",
        "a%2e.test",
        "a/b",
        "a:80",
        "user@host",
        "[::1]",
        "::1",
        "1.2.3.4",
        "1.2.3.4.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "a.0x",
        "a.1",
        "１２７.０.０.１",
        "-a.test",
        "a-.test",
        "xn--.test",
        "xn--zzzzzz---.test",
        "*.test",
        "*",
        "a\u{202e}.test",
        "\u{ad}",
        &long_label,
        &long_name,
    ] {
        let error = Hostname::parse(text).unwrap_err();
        assert!(error.message().contains("is not a host name"), "{text:?}: {error}");
        assert!(!error.message().chars().any(char::is_control), "{text:?}");
    }
    assert!(Hostname::from_bytes(b"a\xff.test").is_err());
    assert!(Hostname::parse(&"a".repeat(1 << 20)).unwrap_err().message().len() < 500);
}

#[test]
fn a_pattern_means_names_below_it_and_not_itself() {
    let below = NamePattern::parse("*.Allowed.test.").unwrap();
    assert_eq!(below.to_string(), "*.allowed.test");
    for (text, matches) in [
        ("a.allowed.test", true),
        ("a.b.allowed.test", true),
        ("allowed.test", false),
        ("evilallowed.test", false),
        ("allowed.test.evil.test", false),
    ] {
        assert_eq!(below.matches(&name(text)), matches, "{text}");
    }
    for text in ["*", "*test", "a.*.test", "**.test", "*.", "*.*.test", "*.1.2.3.4"] {
        assert!(NamePattern::parse(text).is_err(), "{text}");
    }
}

#[test]
fn ranges_of_addresses_are_exact() {
    let cidr = Cidr::parse("10.0.0.0/8").unwrap();
    assert!(cidr.contains("10.255.0.1".parse().unwrap()) && !cidr.contains("11.0.0.1".parse().unwrap()));
    assert!(cidr.contains("::ffff:10.0.0.1".parse().unwrap()));
    assert_eq!(Cidr::parse("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
    for text in
        ["10.0.0.1/8", "::ffff:10.0.0.0/104", "10.0.0.0/33", "10.0.0.0/", "10/8", "010.0.0.0/8", "", "a"]
    {
        assert!(Cidr::parse(text).is_err(), "{text}");
    }
}

#[test]
fn rules_read_as_they_are_written() {
    for (text, shown) in [
        ("example.com", "example.com:80,443"),
        ("Example.com:8080", "example.com:8080"),
        ("*.example.com:any", "*.example.com:any"),
        ("example.com:1-2,3,9-7000", "example.com:1-3,9-7000"),
        ("ntp.test:123/udp", "ntp.test:123/udp"),
        ("example.com:53/tcp", "example.com:53"),
        ("192.0.2.0/24:5432", "192.0.2.0/24:5432"),
        ("192.0.2.7", "192.0.2.7/32:80,443"),
        ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
        ("2001:db8::/32", "[2001:db8::/32]:80,443"),
    ] {
        let rule: EgressRule = text.parse().unwrap();
        assert_eq!(rule.to_string(), shown);
        assert_eq!(shown.parse::<EgressRule>().unwrap(), rule);
    }
    for text in [
        "",
        ":80",
        "https://example.com",
        "user@example.com",
        "example.com/path",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+80",
        "example.com:2-1",
        "example.com:http",
        "ntp.test/udp",
        "[2001:db8::/32",
        "[2001:db8::/32]443",
        "[example.com]:80",
        "1.2.3:80",
        "example.com:80/sctp",
    ] {
        assert!(text.parse::<EgressRule>().is_err(), "{text}");
    }
    assert_eq!("0.0.0.0/0".parse::<DenyRule>().unwrap().to_string(), "0.0.0.0/0");
    assert!("10.0.0.0/8:22".parse::<DenyRule>().unwrap().ports.contains(22));
}

#[test]
fn a_policy_keeps_its_form() {
    let policy = EgressPolicy::Rules(EgressRules {
        allow: vec!["*.example.com".parse().unwrap(), "ntp.test:123/udp".parse().unwrap()],
        deny: vec!["10.0.0.0/8".parse().unwrap()],
        otherwise: Otherwise::Allow,
    });
    let form = json!({"rules": {
        "allow": [
            {"to": {"name": "*.example.com"}, "ports": "80,443", "protocol": "tcp"},
            {"to": {"name": "ntp.test"}, "ports": "123", "protocol": "udp"},
        ],
        "deny": [{"to": {"cidr": "10.0.0.0/8"}, "ports": "any"}],
        "otherwise": "allow",
    }});
    assert_eq!(serde_json::to_value(&policy).unwrap(), form);
    assert_eq!(serde_json::from_value::<EgressPolicy>(form).unwrap(), policy);
    assert_eq!(serde_json::to_value(EgressPolicy::DenyAll).unwrap(), json!("deny-all"));
    let bad: std::result::Result<EgressPolicy, _> =
        serde_json::from_value(json!({"rules": {"allow": [{"to": {"name": "1.2.3.4"}}]}}));
    assert!(bad.is_err());
}

#[test]
fn an_injected_value_shows_nowhere() {
    let header = HeaderInjection::new("Authorization", "Bearer s3cret").unwrap();
    let rule = "api.test:443".parse::<EgressRule>().unwrap().with_header(header.clone());
    let policy = EgressPolicy::rules(vec![rule], Vec::new(), Otherwise::Deny);
    policy.check("create").unwrap();
    let shown = format!("{policy:?} {}", serde_json::to_string(&policy).unwrap());
    assert!(shown.contains("authorization") && !shown.contains("s3cret"), "{shown}");
    assert_eq!(header.reveal(), Some("Bearer s3cret"));
    let back: Value = serde_json::to_value(&header).unwrap();
    assert_eq!(serde_json::from_value::<HeaderInjection>(back).unwrap().reveal(), None);
    for (header, value) in [
        ("", "v"),
        ("a b", "v"),
        ("a:", "v"),
        ("Host", "v"),
        ("content-length", "1"),
        ("x", "a\r\nb: c"),
        ("x", " s3cret"),
    ] {
        let error = HeaderInjection::new(header, value).unwrap_err();
        assert!(!error.to_string().contains("s3cret"));
    }
}

#[test]
fn headers_go_only_where_http_is_read() {
    let header = HeaderInjection::new("x-key", "v").unwrap();
    for text in ["10.0.0.0/8:443", "api.test:8443", "api.test:443/udp", "api.test:any"] {
        let rule = text.parse::<EgressRule>().unwrap().with_header(header.clone());
        let policy = EgressPolicy::rules(vec![rule], Vec::new(), Otherwise::Deny);
        assert!(policy.check("create").unwrap_err().message().contains("injects a header"), "{text}");
    }
    let many = vec!["a.test".parse().unwrap(); MAX_RULES + 1];
    assert!(EgressPolicy::rules(many, Vec::new(), Otherwise::Deny).check("create").is_err());
}

proptest! {
    #[test]
    fn a_name_that_was_read_reads_the_same(text in "\\PC{0,40}") {
        if let Ok(read) = Hostname::parse(&text) {
            let again: Result<Hostname> = Hostname::parse(read.as_str());
            prop_assert_eq!(again.unwrap(), read.clone());
            prop_assert!(read.as_str().is_ascii() && read.as_str().len() <= 253);
            prop_assert!(read.as_str().parse::<std::net::IpAddr>().is_err());
        }
    }

    #[test]
    fn sets_of_ports_hold_what_their_ranges_hold(ranges in prop::collection::vec((1u16.., 1u16..), 1..8), port in 1u16..) {
        let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| a.min(b)..=a.max(b)).collect();
        let set = PortSet::of(ranges.clone()).unwrap();
        prop_assert_eq!(set.contains(port), ranges.iter().any(|range| range.contains(&port)));
        prop_assert_eq!(PortSet::parse(&set.to_string()).unwrap(), set);
    }
}

#[test]
fn what_is_wrong_is_told_in_words_that_can_be_seen() {
    let error = Hostname::parse("a b.test").unwrap_err().to_string();
    assert!(error.contains("it holds a space"), "{error}");
    let error = "a.test/udp".parse::<EgressRule>().unwrap_err().to_string();
    assert!(error.contains("`a.test:123/udp`"), "{error}");
}
