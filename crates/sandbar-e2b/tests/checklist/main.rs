//! Whether each behaviour of the checklist has a test that is there, and whether its page is current.

mod document;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use document::{document, rows};

/// All Rust code below a folder.
fn code(folder: &Path) -> String {
    let mut text = String::new();
    let mut pending: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            pending.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).expect("text"));
        }
    }
    text
}

#[test]
fn every_test_that_is_named_is_there() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = own.parent().expect("it lies among others");
    let suites = [
        ("lib", code(&own.join("src"))),
        ("wire", code(&own.join("tests/wire"))),
        ("server", code(&own.join("tests/server"))),
        ("guest", code(&crates.join("sandbar-guest"))),
        ("facade", code(&crates.join("sandbar/src"))),
    ];
    let cases: BTreeSet<_> = sandbar_contract::cases().iter().map(|case| case.name).collect();
    let mut missing = Vec::new();
    for row in rows() {
        let is_there = match row.test.split_once(' ') {
            None => row.test == "-" && row.verdict.starts_with("not applicable ("),
            Some(("kit", case)) => cases.contains(case),
            Some((suite, name)) => {
                let found = suites.iter().find(|(known, _)| *known == suite);
                found.is_some_and(|(_, code)| code.contains(&format!("fn {name}(")))
            }
        };
        if !is_there {
            missing.push(format!("{}: {}", row.id, row.test));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_row_has_a_verdict_and_an_id_of_its_own() {
    let rows = rows();
    let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), rows.len());
    // The eight combinations are one row.
    assert_eq!(rows.len(), 197);
    for row in rows {
        let is_one = row.verdict == "as specified"
            || ["bettered (", "not applicable ("]
                .iter()
                .any(|start| row.verdict.starts_with(start) && row.verdict.ends_with(')'));
        assert!(is_one, "{}: {}", row.id, row.verdict);
        assert!(row.verdict.starts_with("not applicable") || row.test != "-", "{}", row.id);
    }
}

#[test]
fn the_page_is_current() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/e2b-checklist.md");
    let written = fs::read_to_string(&page).expect("the page");
    assert!(written == document(), "it is not: run `cargo xtask gen`");
}
