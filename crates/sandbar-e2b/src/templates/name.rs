use sandbar_wire::e2b::SnapshotInfo;

/// Longest name that E2B takes, in bytes.
const MAX_NAME: usize = 128;

/// The name of a snapshot without its team and tag, as `team/name:tag` has it: of its first name, or of its id where it has none. The one place
/// that takes such names apart.
pub(crate) fn bare_name(snapshot: &SnapshotInfo) -> &str {
    bare(snapshot.names.first().unwrap_or(&snapshot.snapshot_id))
}

/// `team/name:tag` without its team and tag.
pub(crate) fn bare(name: &str) -> &str {
    let name = template_part(name);
    name.rsplit_once('/').map_or(name, |(_, name)| name)
}

/// `team/name:tag` without its tag.
pub(crate) fn template_part(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(name, _)| name)
}

/// Whether a caller's id can be a name at E2B, byte for byte: it writes other letters in lower case, and takes `/` and `:` apart.
pub(crate) fn is_bare(id: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    !id.is_empty() && id.len() <= MAX_NAME && id.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(id: &str, names: &[&str]) -> SnapshotInfo {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        SnapshotInfo { snapshot_id: id.to_owned(), names }
    }

    #[test]
    fn names_are_taken_apart_once() {
        for (id, names, bare) in [
            ("x", vec!["team/warm:default"], "warm"),
            ("x", vec!["team/warm"], "warm"),
            ("x", vec!["warm:v2", "other"], "warm"),
            ("x", vec!["warm"], "warm"),
            ("team/warm:default", vec![], "warm"),
            ("abc123:default", vec![], "abc123"),
        ] {
            assert_eq!(bare_name(&snapshot(id, &names)), bare, "{id} {names:?}");
        }
    }

    proptest! {
        #[test]
        fn a_bare_name_comes_back_from_every_form(name in "[a-z0-9_-]{1,20}", team in "[a-z0-9-]{0,9}", tag in "[a-z0-9._-]{0,9}") {
            let mut full = if team.is_empty() { name.clone() } else { format!("{team}/{name}") };
            if !tag.is_empty() {
                full = format!("{full}:{tag}");
            }
            prop_assert!(is_bare(&name));
            prop_assert_eq!(bare(&full), name);
        }

        #[test]
        fn any_text_has_a_bare_name(text in ".*") {
            let name = bare(&text);
            prop_assert!(text.contains(name) && !name.contains('/'));
        }
    }
}
