use super::*;
use crate::ErrorKind;

#[test]
fn names_are_made_plain_or_refused() {
    let strict = Rules::default();
    let rootfs = Rules::rootfs();
    for (path, is) in [("a", "a"), ("./a//b/", "a/b"), (".", ""), ("a/-b", "a/-b"), ("a/..b", "a/..b")] {
        assert_eq!(inside(path.as_bytes(), &strict).unwrap(), is.as_bytes(), "{path}");
    }
    let long = "x".repeat(300);
    for path in ["/a", "../a", "a/../b", "a/..", "-a", "./-a", "a\0b", &long, &"d/".repeat(257)] {
        assert_eq!(inside(path.as_bytes(), &strict).unwrap_err().kind(), ErrorKind::Refused, "{path}");
    }
    for (path, is) in [("/a", "a"), ("/", ""), ("-a", "-a")] {
        assert_eq!(inside(path.as_bytes(), &rootfs).unwrap(), is.as_bytes(), "{path}");
    }
    assert!(inside(b"/../a", &rootfs).is_err());
    assert_eq!(inside(b"", &strict).unwrap_err().kind(), ErrorKind::Malformed);
}

#[test]
fn links_may_lead_up_as_far_as_they_are_deep() {
    let strict = Rules::default();
    for (at, target) in
        [("a", "b"), ("a/l", "../b"), ("a/b/l", "../../c/d"), ("l", "."), ("l", "l"), ("a/l", "..")]
    {
        check_target(at.as_bytes(), target.as_bytes(), &strict).unwrap();
    }
    for (at, target) in
        [("l", ".."), ("a/l", "../../b"), ("l", "/etc"), ("a/b/l", "up/../x"), ("l", ""), ("l", "a\0")]
    {
        let error = check_target(at.as_bytes(), target.as_bytes(), &strict).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{at} -> {target}");
    }
    check_target(b"l", b"/etc/../..", &Rules::rootfs()).unwrap();
    let at = |destination: &str| Rules::default().with_destination(destination);
    for inside in ["/home/user/app", "/home/user/app/", "/home/user//app/./bin/x", "/home/user/app/.../x"] {
        check_target(b"a/l", inside.as_bytes(), &at("/home/user/app/")).unwrap();
    }
    for outside in
        ["/", "/usr/bin/python3", "/home/user/application", "/home/user/app/../x", "/home/user/app/a/.."]
    {
        check_target(b"a/l", outside.as_bytes(), &at("/home/user/app")).unwrap_err();
    }
    check_target(b"l", b"/x", &at("/")).unwrap_err();
    check_target(b"l", b"/a/x", &at("/b/../a")).unwrap_err();
}
