use http::StatusCode;
use proptest::prelude::*;

use super::*;

fn names() -> Names {
    Names::new(Some("sbx.test:8443"), "https://api.own.test:8443", false)
}

fn route(names: &Names, target: &str, headers: &[(&str, &str)]) -> Result<Route, StatusCode> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    names.route(&Method::GET, &target.parse().unwrap(), &map).map_err(|error| error.status)
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what may fail")]
fn to(id: &str, port: u16) -> Result<Route, StatusCode> {
    Ok(Route::Sandbox { id: id.to_owned(), port })
}

const BAD: Result<Route, StatusCode> = Err(StatusCode::BAD_REQUEST);
const FORBIDDEN: Result<(), StatusCode> = Err(StatusCode::FORBIDDEN);

#[test]
fn headers_route_where_the_host_is_shared() {
    let both = [("e2b-sandbox-id", "sabc"), ("e2b-sandbox-port", "49983")];
    for host in ["localhost:3000", "127.0.0.1:3000", "[::1]", "sandbox.sbx.test", "api.own.test:8443"] {
        let headers = [&both[..], &[("host", host)]].concat();
        assert_eq!(route(&names(), "/health", &headers), to("sabc", 49983), "{host}");
    }
    // A page of somebody else's name is not let in by headers.
    let local = Names::new(None, "http://127.0.0.1:3000", true);
    for page in ["evil.test", "sandbox.evil.test", "sbx.test.evil.test", "a.sandbox.sbx.test"] {
        let headers = [&both[..], &[("host", page)]].concat();
        assert_eq!(route(&names(), "/health", &headers), Ok(Route::Control), "{page}");
        assert_eq!(route(&local, "/health", &headers), Ok(Route::Control), "{page}");
    }
    // A name says which sandbox, whatever the headers say.
    let headers = [&both[..], &[("host", "80-sother.sbx.test")]].concat();
    assert_eq!(route(&names(), "/health", &headers), to("sother", 80));
}

#[test]
fn one_header_alone_or_a_strange_one_is_a_bad_request() {
    let bad: &[&[(&str, &str)]] = &[
        &[("e2b-sandbox-id", "sabc")],
        &[("e2b-sandbox-port", "80")],
        &[("e2b-sandbox-id", "../etc"), ("e2b-sandbox-port", "80")],
        &[("e2b-sandbox-id", "a-b"), ("e2b-sandbox-port", "80")],
        &[("e2b-sandbox-id", "SABC"), ("e2b-sandbox-port", "80")],
        &[("e2b-sandbox-id", ""), ("e2b-sandbox-port", "80")],
        &[("e2b-sandbox-id", "sabc"), ("e2b-sandbox-port", "0")],
        &[("e2b-sandbox-id", "sabc"), ("e2b-sandbox-port", "65536")],
        &[("e2b-sandbox-id", "sabc"), ("e2b-sandbox-port", "-1")],
        &[("e2b-sandbox-id", "sabc"), ("e2b-sandbox-id", "sdef"), ("e2b-sandbox-port", "80")],
    ];
    for headers in bad {
        let headers = [headers, &[("host", "localhost")][..]].concat();
        assert_eq!(route(&names(), "/health", &headers), BAD, "{headers:?}");
    }
    assert_eq!(route(&names(), "/", &[("host", "localhost"), ("host", "80-s.sbx.test")]), BAD);
}

#[test]
fn names_below_the_domain_route() {
    assert_eq!(route(&names(), "/x", &[("host", "3000-sabc.sbx.test:8443")]), to("sabc", 3000));
    // HTTP/2 has it in the target.
    assert_eq!(route(&names(), "https://3000-sabc.sbx.test:8443/x", &[]), to("sabc", 3000));
    assert_eq!(route(&names(), "/x", &[("host", "api.sbx.test")]), Ok(Route::Control));
    assert_eq!(route(&names(), "/x", &[("host", "3000-sabc.other.test")]), Ok(Route::Control));
    for bad in ["0-sabc.sbx.test", "99999-sabc.sbx.test", "3000-s-x.sbx.test", "3000-.sbx.test"] {
        assert_eq!(route(&names(), "/x", &[("host", bad)]), BAD, "{bad}");
    }
    let local = Names::new(None, "http://127.0.0.1:3000", true);
    assert_eq!(route(&local, "/x", &[("host", "3000-sabc.localhost:3000")]), to("sabc", 3000));
    assert_eq!(route(&local, "/x", &[("host", "3000-sabc.sbx.test")]), Ok(Route::Control));
}

#[test]
fn what_only_a_guest_has_says_so_without_headers() {
    let local = Names::new(None, "http://127.0.0.1:3000", true);
    let host = [("host", "localhost:3000")];
    for path in
        ["/files?path=a", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/execute", "/contexts/x"]
    {
        assert_eq!(route(&local, path, &host), BAD, "{path}");
    }
    assert_eq!(route(&local, "/files?path=a&signature=v1_x", &host), Ok(Route::Signed));
    for path in ["/health", "/sandboxes", "/metrics", "/filesystem"] {
        assert_eq!(route(&local, path, &host), Ok(Route::Control), "{path}");
    }
}

#[test]
fn a_page_of_another_name_does_not_reach_the_control_plane() {
    let local = Names::new(None, "http://127.0.0.1:3000", true);
    let admitted = |names: &Names, headers: &[(&str, &str)]| {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()));
        names.admit(&"/sandboxes".parse().unwrap(), &pairs.collect()).map_err(|error| error.status)
    };
    for host in ["localhost:3000", "127.0.0.1:3000", "[::1]:3000", "api.localhost"] {
        assert_eq!(admitted(&local, &[("host", host)]), Ok(()), "{host}");
        assert_eq!(admitted(&local, &[("host", host), ("origin", "http://evil.test")]), FORBIDDEN, "{host}");
        assert_eq!(admitted(&local, &[("host", host), ("origin", "http://localhost:3000")]), Ok(()));
    }
    assert_eq!(admitted(&local, &[("host", "evil.test")]), FORBIDDEN);
    for origin in ["null", "", "file://", "https://evil.test/127.0.0.1", "http://127.0.0.1.evil.test"] {
        assert_eq!(admitted(&local, &[("host", "127.0.0.1"), ("origin", origin)]), FORBIDDEN, "{origin}");
    }
    // Who listens for others has names that he does not know.
    assert_eq!(admitted(&names(), &[("host", "this-machine:3000")]), Ok(()));
    assert_eq!(
        admitted(&names(), &[("host", "api.sbx.test"), ("origin", "https://api.sbx.test:8443")]),
        Ok(())
    );
    assert_eq!(admitted(&names(), &[("host", "api.sbx.test"), ("origin", "https://evil.test")]), FORBIDDEN);
}

proptest! {
    #[test]
    fn no_head_leads_to_an_id_or_port_that_none_can_have(host in "[ -~]{0,40}", id in "[ -~]{0,12}", port in "[ -~]{0,7}") {
        crate::fuzzing::route(format!("{host}\n{id}\n{port}\n/files").as_bytes());
    }

    #[test]
    fn what_is_well_formed_arrives(id in "[a-z0-9]{1,40}", port in 1_u16..) {
        let host = format!("{port}-{id}.sbx.test");
        prop_assert_eq!(route(&names(), "/", &[("host", &host)]), to(&id, port));
        let headers = [("host", "localhost"), ("e2b-sandbox-id", &id), ("e2b-sandbox-port", &port.to_string())];
        prop_assert_eq!(route(&names(), "/", &headers), to(&id, port));
    }
}
