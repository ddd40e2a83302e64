use serde_json::json;

use crate::harness::{Home, both, code};

#[test]
fn a_volume_is_made_used_shown_and_removed() {
    let home = Home::new();
    assert_eq!(home.text(&["volume", "create", "cache", "data"]), "cache\ndata");
    assert_eq!(home.text(&["volume", "create", "cache"]), "cache", "one that is there is a success");
    home.text(&["run", "--volume", "cache:/mnt/deep/er", "--", "sh", "-c", "echo kept > /mnt/deep/er/f"]);
    let read = ["run", "--volume", "cache:/home/user/c", "--volume", "data:/d", "--", "cat", "c/f"];
    assert_eq!(home.text(&read), "kept");

    let id = home.create(&["--name", "holder", "--volume", "cache:/mnt"]);
    let record = home.json(&["describe", "holder", "--json"]);
    assert_eq!(record["volumes"], json!([{"name": "cache", "path": "/mnt"}]));
    assert!(home.text(&["describe", "holder"]).contains("cache at /mnt"));
    let listed = home.json(&["volume", "ls", "--json"]);
    let volumes = listed["volumes"].as_array().unwrap();
    assert_eq!((volumes.len(), &listed["version"]), (2, &json!(1)), "{listed}");
    assert_eq!((&volumes[0]["name"], &volumes[0]["attached"]), (&json!("cache"), &json!(true)), "{listed}");
    assert!(volumes[0]["size_bytes"].is_u64() && volumes[0]["created_at"].is_string(), "{listed}");
    let names = |arguments: &[&str]| {
        let listed = home.json(&[&["volume", "ls", "--json"], arguments].concat());
        listed["volumes"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--unattached"]), ["data"]);
    assert_eq!(names(&["--attached", "--prefix", "ca"]), ["cache"]);
    let shown = home.json(&["volume", "show", "cache", "--json"]);
    assert_eq!(
        shown["sandboxes"],
        json!([{"id": id, "name": "holder", "state": "running", "path": "/mnt"}]),
        "{shown}"
    );
    assert!(home.text(&["volume", "show", "cache"]).contains(&id));
    assert!(home.text(&["volume", "ls"]).starts_with("NAME "));

    let held = home.run(&["volume", "rm", "cache", "data", "--json"]);
    assert_eq!(code(&held), 125, "{}", both(&held));
    let report: serde_json::Value = serde_json::from_slice(&held.stdout).unwrap();
    assert_eq!(report, json!({"version": 1, "removed": ["data"], "absent": [], "failed": ["cache"]}));
    assert!(String::from_utf8_lossy(&held.stderr).contains(&id), "{}", both(&held));
    home.text(&["destroy", &id]);
    home.text(&["volume", "rm", "cache"]);
    for arguments in [&["volume", "rm", "cache"][..], &["volume", "show", "cache"]] {
        let gone = home.run(arguments);
        assert_eq!(code(&gone), 1, "{}", both(&gone));
    }
    assert_eq!(home.json(&["volume", "ls", "--json"]), json!({"version": 1, "volumes": []}));
}

#[test]
fn what_is_wrong_about_a_volume_is_said() {
    let home = Home::new();
    for (arguments, expected, part) in [
        (&["run", "--volume", "none:/mnt", "--", "true"][..], 125, "volume `none`"),
        (&["run", "--volume", "/srv:/mnt", "--", "true"], 2, "--mount"),
        (&["run", "--volume", "v", "--", "true"], 2, "NAME:/PATH"),
        (&["run", "--volume", "v:/a", "--volume", "w:/a", "--", "true"], 2, "two mounts at `/a`"),
        (&["create", "--volume", "v:/proc"], 2, "/proc"),
        (&["volume", "create", "../x"], 2, "volume name"),
        (&["volume", "create"], 2, "NAME"),
        (&["volume", "ls", "--attached", "--unattached"], 2, "--unattached"),
        (&["system", "df", "--provider", "moon:"], 2, "not this machine"),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", both(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(part), "{arguments:?}: {}", both(&output));
    }
}

#[test]
fn sandboxes_are_listed_by_project_label_and_state() {
    let home = Home::new();
    let one = home.create(&["--project", "shop", "--label", "a=b"]);
    home.create(&["--project", "other", "--label", "a=b"]);
    let ids = |arguments: &[&str]| {
        let listed = home.json(&[&["ls", "--json"], arguments].concat());
        listed.as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--project", "shop"]), [one.as_str()]);
    assert_eq!(ids(&["--project", "shop", "--label", "a=b", "--state", "running"]), [one.as_str()]);
    assert!(ids(&["--project", "shop", "--state", "sleeping"]).is_empty());
    assert_eq!(ids(&["--label", "a=b"]).len(), 2);
    assert_eq!(home.json(&["describe", &one, "--json"])["project"], "shop");
}

#[test]
fn disk_use_is_told_and_what_nobody_needs_goes_when_asked() {
    let home = Home::new();
    let nothing = home.json(&["system", "df", "--json"]);
    assert!(nothing["parts"].as_array().unwrap().iter().all(|part| part["bytes"] == 0), "{nothing}");
    assert_eq!(home.text(&["prune"]), "nothing to remove");
    home.text(&["volume", "create", "v"]);
    let id = home.create(&[]);
    home.text(&["exec", &id, "--", "sh", "-c", "head -c 2000000 /dev/urandom > f"]);
    let used = home.json(&["system", "df", "--json"]);
    let part = |name: &str| {
        used["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap().clone()
    };
    assert!(part("sandboxes")["bytes"].as_u64().unwrap() >= 2_000_000, "{used}");
    assert_eq!((&part("volumes")["count"], &part("sandboxes")["count"]), (&json!(1), &json!(1)));
    assert!(home.text(&["system", "df"]).contains("volumes"));

    let wreck = home.data().join("volumes/.old-wreck");
    std::fs::create_dir(&wreck).unwrap();
    std::fs::write(wreck.join("f"), [1; 10_000]).unwrap();
    let planned = home.json(&["prune", "--json"]);
    assert_eq!((&planned["removed"], &planned["problems"]), (&json!(false), &json!([])), "{planned}");
    let kinds = planned["items"].as_array().unwrap().iter().map(|item| item["kind"].as_str().unwrap());
    assert_eq!(kinds.filter(|kind| *kind == "unfinished").count(), 1, "{planned}");
    assert!(planned["bytes"].as_u64().unwrap() >= 10_000 && wreck.exists(), "{planned}");
    assert!(home.text(&["prune"]).contains("--force"));
    let done = home.json(&["prune", "--force", "--json"]);
    assert!(done["items"].as_array().unwrap().iter().all(|item| item["removed"] == true), "{done}");
    assert!(!wreck.exists());
    assert_eq!(home.text(&["prune"]), "nothing to remove");
    assert_eq!(home.count(), 1);
}

/// What `system init-store` can't do it says, and makes nothing.
#[test]
fn a_store_that_can_not_be_made_is_refused() {
    let home = Home::new();
    let output = home.run(&["system", "init-store", "--size", "1M"]);
    assert_ne!(code(&output), 0, "{}", both(&output));
    assert!(both(&output).contains("too few") && both(&output).contains("20G"), "{}", both(&output));
    // More than any disk of root's has, and nothing for others.
    let output = home.run(&["system", "init-store", "--size", "8388607T", "--json"]);
    assert_ne!(code(&output), 0, "{}", both(&output));
    let why = if rustix::process::geteuid().is_root() { "expected at most" } else { "only root" };
    assert!(both(&output).contains(why), "{}", both(&output));
    home.assert_empty();
}
