//! Links on the way to a mount: they must not put it over the agent, the kernel's folders, or another mount.

use std::path::{Path, PathBuf};

use sandbar_engine::Access;
use serde_json::json;

use crate::harness::{Bench, Options};
use crate::modes::in_every_mode;

const MARK: &str = "mounted";

/// A folder of the host with a file that tells that it is mounted, and folders and links below it.
fn folder(bench: &Bench, name: &str, links: &[(&str, &str)]) -> PathBuf {
    let at = bench.folder.path().join(name);
    std::fs::create_dir_all(at.join("plain/deep")).unwrap();
    std::fs::write(at.join("agent"), format!("{MARK} {name}")).unwrap();
    for (place, text) in links {
        std::os::unix::fs::symlink(text, at.join(place)).unwrap();
    }
    at
}

fn options(left: &[(&'static str, &str)], mounts: &[(&Path, &str)]) -> Options {
    Options {
        left: left.iter().map(|(place, text)| (*place, PathBuf::from(text))).collect(),
        mounts: mounts
            .iter()
            .map(|(source, target)| (source.to_path_buf(), PathBuf::from(target), Access::ReadOnly))
            .collect(),
        ..Options::default()
    }
}

fn refused(bench: &Bench, left: &[(&'static str, &str)], mounts: &[(&Path, &str)]) {
    let case = format!("{left:?} {mounts:?}");
    let error = bench.try_start(r#"{ "task": "wait" }"#, &options(left, mounts)).expect_err(&case);
    assert_eq!(error.errno(), Some(libc::ELOOP), "{case}: {error}");
    let (_, target) = mounts.last().unwrap();
    assert!(error.to_string().contains(&format!("mount at {target}: ")), "{case}: {error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("link")), "{case}: {error}");
}

/// The mount shows at each of `places`.
fn shows(bench: &Bench, left: &[(&'static str, &str)], mounts: &[(&Path, &str)], places: &[&str]) {
    let files: Vec<_> = places.iter().map(|place| format!("{place}/agent")).collect();
    let task = json!({ "task": "report", "read": files }).to_string();
    let report = bench.report(&task, &options(left, mounts));
    for file in files {
        let said = &report["read"][&file];
        let is_there = said.as_str().is_some_and(|text| text.starts_with(MARK));
        assert!(is_there, "{file} with {left:?} {mounts:?}: {said}");
    }
}

#[test]
fn a_link_puts_no_mount_out_of_the_root_file_system() {
    in_every_mode("links::a_link_puts_no_mount_out_of_the_root_file_system", |bench| {
        let source = folder(bench, "source", &[]);
        for text in [
            "/run/sandbar",
            "run/sandbar",
            "../../run",
            "/proc",
            "/proc/self",
            "/sys",
            "/dev",
            "/dev/shm",
            "/usr",
            "/usr/bin",
            "/",
            ".",
            "/srv/..",
            // It leads nowhere.
            "/nowhere",
            "/run/nowhere",
        ] {
            refused(bench, &[("c", text)], &[(&source, "/c")]);
        }
        for (text, target) in [
            ("/run", "/c/sandbar"),
            ("/", "/c/run/sandbar"),
            ("/", "/c/proc"),
            ("/", "/c/usr/share"),
            ("/run", "/c/made/here"),
            ("/nowhere", "/c/made/here"),
        ] {
            refused(bench, &[("c", text)], &[(&source, target)]);
        }
        refused(bench, &[("c", "d"), ("d", "/run/sandbar")], &[(&source, "/c")]);
        // A file over the agent's.
        refused(bench, &[("c", "/run/sandbar/agent")], &[(&source.join("agent"), "/c")]);
        refused(bench, &[("c", "/run/made")], &[(&source.join("agent"), "/c")]);
        assert!(!std::fs::exists(source.join("made")).unwrap());
    });
}

#[test]
fn a_link_in_a_mount_leads_no_other_mount() {
    in_every_mode("links::a_link_in_a_mount_leads_no_other_mount", |bench| {
        let links =
            [("run", "/run/sandbar"), ("srv", "/srv"), ("own", "plain"), ("up", ".."), ("none", "/nowhere")];
        let (outer, inner) = (folder(bench, "outer", &links), folder(bench, "inner", &[]));
        for target in
            ["/v/run", "/v/srv", "/v/srv/x", "/v/own", "/v/own/deep", "/v/up", "/v/none", "/v/up/run"]
        {
            refused(bench, &[], &[(&outer, "/v"), (&inner, target)]);
        }
        // Below a mount that a link led, too: the path itself is all that counts there.
        refused(bench, &[("c", "/srv")], &[(&outer, "/c"), (&inner, "/c/plain")]);
    });
}

#[test]
fn plain_paths_and_links_in_the_root_file_system_work() {
    in_every_mode("links::plain_paths_and_links_in_the_root_file_system_work", |bench| {
        let (outer, inner) = (folder(bench, "outer", &[]), folder(bench, "inner", &[]));
        let (outer, inner) = (outer.as_path(), inner.as_path());
        let third = (inner, "/v/plain/plain/deep");
        shows(bench, &[], &[(outer, "/v"), (inner, "/v/plain")], &["/v", "/v/plain"]);
        shows(bench, &[], &[(outer, "/v"), (inner, "/v/plain"), third], &["/v", "/v/plain", third.1]);
        shows(bench, &[], &[(outer, "/v/made/here")], &["/v/made/here"]);
        shows(bench, &[], &[(outer, "/usr/share")], &["/usr/share"]);
        shows(bench, &[("c", "/srv")], &[(outer, "/c")], &["/c", "/srv"]);
        shows(bench, &[("c", "srv"), ("d", "c")], &[(outer, "/d/made/here")], &["/srv/made/here"]);
        shows(bench, &[("c", "/")], &[(outer, "/c/srv")], &["/srv", "/c/srv"]);
        let file = inner.join("agent");
        shows(bench, &[("c", "/srv")], &[(&file, "/c/agent")], &["/srv"]);
    });
}
