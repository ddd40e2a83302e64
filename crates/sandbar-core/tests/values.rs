//! Names, paths, labels, environment: whatever goes in, only what is well formed comes out, and unchanged.

use proptest::prelude::*;
use sandbar_core::{
    CreateOptions, EnvVars, ErrorKind, ExitStatus, GuestPath, Labels, ProjectId, Resources, SandboxId,
    SandboxName, TemplateId, UserName, VolumeName,
};

proptest! {
    #[test]
    fn guest_path_is_normal_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        match GuestPath::new(&bytes) {
            Ok(path) => {
                let normal = path.as_bytes();
                prop_assert!(normal.starts_with(b"/"));
                prop_assert!(!normal.contains(&0));
                prop_assert!(path.is_root() || !normal.ends_with(b"/"));
                prop_assert!(!normal.windows(2).any(|pair| pair == b"//"));
                prop_assert!(normal.split(|b| *b == b'/').all(|segment| segment != b".." && segment != b"."));
                prop_assert_eq!(GuestPath::new(normal).unwrap(), path);
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }

    #[test]
    fn guest_path_segments_are_kept(segments in proptest::collection::vec("[^/\0]{1,20}", 1..6)) {
        prop_assume!(segments.iter().all(|segment| segment != "." && segment != ".."));
        let text = format!("/{}", segments.join("//"));
        let path = GuestPath::new(&text).unwrap();
        let joined = format!("/{}", segments.join("/"));
        prop_assert_eq!(path.as_bytes(), joined.as_bytes());
        prop_assert_eq!(path.file_name(), segments.last().map(String::as_bytes));
        let parent = path.parent().unwrap();
        prop_assert!(path.is_within(&parent));
        prop_assert!(!parent.is_within(&path));
        prop_assert_eq!(parent.join(segments.last().unwrap()).unwrap(), path);
    }

    #[test]
    fn sibling_with_the_same_beginning_is_not_within(name in "[a-z]{1,8}", more in "[a-z]{1,8}") {
        let folder = GuestPath::new(format!("/x/{name}")).unwrap();
        let sibling = GuestPath::new(format!("/x/{name}{more}")).unwrap();
        prop_assert!(!sibling.is_within(&folder));
    }

    #[test]
    fn displayed_path_has_no_control_characters(bytes in proptest::collection::vec(1_u8.., 1..50)) {
        let Ok(path) = GuestPath::new([b"/", bytes.as_slice()].concat()) else { return Ok(()) };
        prop_assert!(!path.to_string().chars().any(char::is_control));
    }

    #[test]
    fn names_are_kept_or_refused(text in any::<String>()) {
        prop_assert!(SandboxId::new(text.clone()).map_or(true, |id| id.as_str() == text));
        prop_assert!(SandboxName::new(text.clone()).map_or(true, |name| name.as_str() == text));
        prop_assert!(ProjectId::new(text.clone()).map_or(true, |id| id.as_str() == text));
        prop_assert!(TemplateId::new(text.clone()).map_or(true, |id| id.as_str() == text));
        prop_assert!(VolumeName::new(text.clone()).map_or(true, |name| name.as_str() == text));
        prop_assert!(UserName::new(text.clone()).map_or(true, |name| name.as_str() == text));
    }

    #[test]
    fn ids_fit_a_path_segment(text in "\\PC{0,40}") {
        if let Ok(id) = SandboxId::new(text) {
            prop_assert!(!id.as_str().contains(['/', '.', ' ']));
            prop_assert!(!id.as_str().starts_with('-'));
        }
    }

    #[test]
    fn errors_show_no_env_value(name in any::<String>(), value in "s3cr3t[a-z]{10}\\PC{0,10}") {
        if let Err(error) = EnvVars::new().with(name, value) {
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains("s3cr3t"));
        }
    }

    #[test]
    fn env_debug_shows_names_only(name in "[A-Z_][A-Z0-9_]{0,8}", value in "v4lue[a-z]{8}") {
        let shown = format!("{:?}", EnvVars::new().with(name.clone(), value).unwrap());
        prop_assert!(shown.contains(&name) && !shown.contains("v4lue"));
    }

    #[test]
    fn labels_round_trip_through_json(entries in proptest::collection::btree_map("[a-z.]{1,10}", "\\PC{0,20}", 0..10)) {
        let mut labels = Labels::new();
        for (key, value) in &entries {
            prop_assume!(!key.starts_with(Labels::RESERVED_PREFIX));
            labels.insert(key, value).unwrap();
        }
        let json = serde_json::to_string(&labels).unwrap();
        let back: Labels = serde_json::from_str(&json).unwrap();
        prop_assert!(back.contains_all(&labels) && labels.contains_all(&back));
    }
}

#[test]
fn ids_from_json_are_checked() {
    assert!(serde_json::from_str::<SandboxId>("\"fine-1\"").is_ok());
    for bad in ["\"\"", "\"../up\"", "\"a b\"", "\"-x\""] {
        assert!(serde_json::from_str::<SandboxId>(bad).is_err(), "{bad}");
    }
}

#[test]
fn labels_have_limits() {
    let mut labels = Labels::new();
    for number in 0..128 {
        labels.insert(format!("key-{number}"), "x").unwrap();
    }
    assert_eq!(labels.insert("one-more", "x").unwrap_err().kind(), ErrorKind::InvalidInput);
    labels.insert("key-5", "replaced").unwrap();
    assert_eq!(labels.get("key-5"), Some("replaced"));
    assert!(Labels::new().insert("key", "x".repeat(4097)).is_err());
    assert!(Labels::new().insert("sandbar.x", "y").is_err());
    assert!(Labels::new().insert("", "y").is_err());
}

#[test]
fn unknown_end_is_never_a_success() {
    assert!(!ExitStatus::Unknown.is_success());
    assert_eq!(ExitStatus::Unknown.to_code(), 137);
    assert_eq!(ExitStatus::Signal(15).to_code(), 143);
    assert!(!ExitStatus::Code(256).is_success());
}

#[test]
fn options_that_nobody_could_honour_are_refused() {
    let bad = [
        CreateOptions::new().with_ports([0]),
        CreateOptions::new().with_ports([80, 80]),
        CreateOptions::new().with_resources(Resources::default().with_pids(0)),
        CreateOptions::new().with_deadline(std::time::Duration::ZERO),
    ];
    for options in bad {
        assert_eq!(options.check().unwrap_err().kind(), ErrorKind::InvalidInput, "{options:?}");
    }
    CreateOptions::new().with_ports([1, 65535]).check().unwrap();
}
