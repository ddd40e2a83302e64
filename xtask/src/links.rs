//! What the documents of the repository point to has to be there.

use std::fs;
use std::path::Path;

/// Folders of the repository: what a document names in backticks and begins with one of them is a path from the root.
const FOLDERS: [&str; 2] = ["docs/", "crates/"];

/// Complaints about `documents`, which are paths from `root`: each link to a file, each file or folder in backticks, and each test in backticks
/// (`crates/…/file.rs::name`), that leads nowhere.
pub(crate) fn dead(root: &Path, documents: &[&str]) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    for document in documents {
        let text = fs::read_to_string(root.join(document)).map_err(|e| format!("{document}: {e}"))?;
        let folder = root.join(document).parent().unwrap_or(root).to_owned();
        for target in links(&text).filter(|target| !folder.join(target).exists()) {
            complaints.push(format!("{document} has a link to `{target}`, which is not there"));
        }
        for target in named(&text).filter(|target| !root.join(target).exists()) {
            complaints.push(format!("{document} names `{target}`, which is not there"));
        }
        for (file, name) in tests(&text) {
            let code = fs::read_to_string(root.join(file)).unwrap_or_default();
            if !code.contains(&format!("fn {name}(")) {
                complaints.push(format!("{document} names the test `{file}::{name}`, which is not there"));
            }
        }
    }
    Ok(complaints)
}

/// Targets of links to files, without what follows a `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(char::is_whitespace))
}

/// Paths in backticks. Those with capital letters or marks stand for many, as `docs/NAME.md` would.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "./-_".contains(c);
        FOLDERS.iter().any(|folder| word.starts_with(folder)) && word.chars().all(plain)
    })
}

/// Tests in backticks: the file, and the function.
fn tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter_map(|word| word.split_once(".rs::").map(|(file, name)| (&word[..file.len() + 3], name)))
        .filter(|(file, _)| FOLDERS.iter().any(|folder| file.starts_with(folder)))
}

#[cfg(test)]
mod checks {
    use super::*;

    #[test]
    fn what_leads_nowhere_is_told() {
        let root = std::env::temp_dir().join(format!("sandbar-links-{}", std::process::id()));
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(
            root.join("docs/a.md"),
            "[b](b.md) [up](../docs/a.md#part) [out](https://example.com/x) [here](#part)\n[gone](gone.md#x) `docs/a.md` `docs/none.md` `docs/NAME.md`\n`docs/t.rs::there` `docs/t.rs::gone` `docs/u.rs::there`\n",
        )
        .unwrap();
        fs::write(root.join("docs/b.md"), "Nothing.").unwrap();
        fs::write(root.join("docs/t.rs"), "fn there() {}").unwrap();
        let complaints = dead(&root, &["docs/a.md", "docs/b.md"]).unwrap();
        assert_eq!(
            complaints,
            [
                "docs/a.md has a link to `gone.md`, which is not there",
                "docs/a.md names `docs/none.md`, which is not there",
                "docs/a.md names the test `docs/t.rs::gone`, which is not there",
                "docs/a.md names the test `docs/u.rs::there`, which is not there",
            ]
        );
        assert!(dead(&root, &["docs/c.md"]).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn documents_of_the_repository_lead_somewhere() {
        let root = crate::run::workspace();
        let mut documents = vec!["README.md".to_owned(), "SECURITY.md".to_owned(), "CHANGELOG.md".to_owned()];
        for folder in ["docs", "docs/decisions"] {
            let entries = fs::read_dir(root.join(folder)).unwrap();
            documents
                .extend(entries.map(|e| format!("{folder}/{}", e.unwrap().file_name().to_string_lossy())));
        }
        documents.retain(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
        let documents: Vec<_> = documents.iter().map(String::as_str).collect();
        assert!(documents.len() > 15);
        assert_eq!(dead(root, &documents).unwrap(), [""; 0]);
    }
}
