use serde_json::json;

use crate::harness::{Home, both, code};

#[test]
fn a_copy_is_made_named_and_goes_its_own_way() {
    let home = Home::new();
    let id = home.create(&["--name", "parent", "--label", "team=blue"]);
    home.text(&["exec", "parent", "--", "sh", "-c", "echo one > /tmp/file"]);
    let copy = home.text(&["fork", "parent", "--name", "copy"]);
    assert_eq!(home.text(&["exec", "copy", "--", "cat", "/tmp/file"]), "one");
    let record = home.json(&["describe", &copy, "--json"]);
    assert_eq!((&record["name"], &record["labels"]["team"]), (&json!("copy"), &json!("blue")), "{record}");
    home.text(&["exec", "copy", "--", "sh", "-c", "echo two > /tmp/file"]);
    let outcome = home.json(&["fork", "copy", "--deny-all", "--json"]);
    let second = outcome["id"].as_str().unwrap().to_owned();
    assert_eq!(
        outcome,
        json!({
            "version": 1, "id": second, "parent": copy, "mechanism": "layer", "copied_bytes": 0,
            "processes_preserved": false,
        })
    );
    assert_eq!(home.text(&["exec", &second, "--", "cat", "/tmp/file"]), "two");
    assert_eq!(home.text(&["exec", &id, "--", "cat", "/tmp/file"]), "one");

    for (arguments, expected, part) in [
        (&["fork", "none"][..], 1, "none"),
        (&["fork", "parent", "--name", "copy"], 125, "copy"),
        (&["fork", "parent", "--volumes", "all"], 2, "read-only"),
    ] {
        let refused = home.run(arguments);
        assert_eq!(code(&refused), expected, "{}", both(&refused));
        assert!(both(&refused).contains(part), "{}", both(&refused));
    }
}
