//! Overlay's own marks, as a sandbox might forge them in its writable layer.

use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};
use sandbar_engine::{Durability, IdMode, LAYERS_FOLDER};
use serde_json::{Value, json};

use crate::harness::{Bench, Options, Running};
use crate::modes::in_every_mode;

const SECRET: &str = "a secret beside the layers";

fn look(running: &mut Running) -> Value {
    serde_json::from_str(&running.read_to_end()).unwrap()
}

fn durable() -> Options {
    Options { durability: Durability::Synced, ..Options::default() }
}

/// A folder and a file of the template's, and of the sandbox's own, with every mark that overlay knows. Redirects lead
/// to what only the host has and to what the template has elsewhere.
fn marks(host: &Path) -> Vec<(&'static str, String, String)> {
    let mut marks = Vec::new();
    for name in
        ["redirect", "opaque", "metacopy", "whiteout", "origin", "impure", "nlink", "upper", "protattr"]
    {
        for (place, value) in [
            ("opt/made", format!("/../..{}", host.display())),
            ("opt/made/file", format!("{}/secret", host.display())),
            ("etc/passwd", "/etc/group".to_owned()),
            ("home/user", host.display().to_string()),
        ] {
            // Those that are no path are what overlay writes itself: a flag, or nothing.
            let value = match name {
                "redirect" => value,
                "opaque" => "y".to_owned(),
                _ => String::new(),
            };
            marks.push((place, format!("user.overlay.{name}"), value));
        }
    }
    marks
}

fn places() -> Value {
    json!(["/opt/made", "/opt/made/file", "/etc/passwd", "/home/user", "/etc/hostname"])
}

fn nothing_of_the_host(seen: &Value, host: &Path) {
    let text = seen.to_string();
    assert!(!text.contains(SECRET) && !text.contains("secret"), "{seen}");
    assert!(host.join("secret").is_file());
    // Not the template's other file either: a redirect would be another way to what a mask covers.
    assert!(!seen["/etc/passwd"].as_str().is_some_and(|text| text.starts_with("root:x:0:\n")), "{seen}");
    assert_eq!(seen["/etc/hostname"], "probe-box\n");
}

fn secret(bench: &Bench) -> std::path::PathBuf {
    let host = bench.folder.path().join("outside");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("secret"), SECRET).unwrap();
    host
}

#[test]
fn marks_set_from_inside_mean_nothing_later() {
    in_every_mode("forged::marks_set_from_inside_mean_nothing_later", |bench| {
        let host = secret(bench);
        let script =
            "mkdir -p /opt/made && echo own > /opt/made/file && touch /etc/passwd /home/user && echo made";
        let task = json!({ "task": "shell", "script": script }).to_string();
        let mut running = bench.start(&task, &durable());
        assert!(running.read_to_end().contains("made"));
        let look_at = json!({ "task": "look", "paths": places() }).to_string();
        let mut running = bench.start_again(running, &look_at, &durable());
        let before = look(&mut running);
        assert_eq!(before["/opt/made/file"], "own\n");

        let attributes: Vec<_> = marks(&host)
            .into_iter()
            .map(|(place, name, value)| json!([format!("/{place}"), name, value]))
            .collect();
        let task = json!({ "task": "forge", "attributes": attributes }).to_string();
        let mut running = bench.start_again(running, &task, &durable());
        println!("setting them answered {}", look(&mut running));

        let mut running = bench.start_again(running, &look_at, &durable());
        let after = look(&mut running);
        bench.end(running);
        nothing_of_the_host(&after, &host);
        // What is set through the overlay is stored under another name, so it does not even hurt the sandbox itself.
        assert_eq!(after, before);
    });
}

#[test]
fn marks_in_the_layer_itself_lead_nowhere() {
    in_every_mode("forged::marks_in_the_layer_itself_lead_nowhere", |bench| {
        let host = secret(bench);
        let script =
            "mkdir -p /opt/made && echo own > /opt/made/file && touch /etc/passwd /home/user && echo made";
        let task = json!({ "task": "shell", "script": script }).to_string();
        let mut running = bench.start(&task, &durable());
        assert!(running.read_to_end().contains("made"));
        let upper = bench.folder.path().join(&running.name).join(LAYERS_FOLDER).join("upper");
        let look_at = json!({ "task": "look", "paths": places() }).to_string();
        let kinds = ["redirect", "opaque", "metacopy", "whiteout", "origin", "impure"];
        // One kind after the other, then all of them together.
        for kind in kinds.iter().map(Some).chain([None]) {
            for (place, name, value) in marks(&host) {
                if kind.is_none_or(|kind| name.ends_with(kind)) {
                    let set = lsetxattr(upper.join(place), &name, value.as_bytes(), XattrFlags::empty());
                    // A folder of a subordinate id is not the caller's to mark.
                    assert!(
                        set.is_ok() || matches!(bench.ids(), IdMode::Subordinate(_)),
                        "{place} {name}: {set:?}"
                    );
                }
            }
            running = bench.start_again(running, &look_at, &durable());
            let seen = look(&mut running);
            println!("{kind:?}: {seen}");
            nothing_of_the_host(&seen, &host);
        }
        bench.end(running);
    });
}
