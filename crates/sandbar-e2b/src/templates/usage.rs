use sandbar_wire::e2b::ListedSandbox;

use super::name::{bare, template_part};

/// Whether a sandbox depends on a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Yes,
    No,
    /// Nobody tells, so it counts as a yes.
    Unknown,
}

/// Whether any of these sandboxes, asleep ones included, was made from the template of this bare name; `id` is the template's own, where it is
/// known.
pub(crate) fn usage(rows: &[ListedSandbox], name: &str, id: Option<&str>) -> Use {
    let mut all = Use::No;
    for row in rows {
        match of_row(row, name, id) {
            Use::Yes => return Use::Yes,
            Use::Unknown => all = Use::Unknown,
            Use::No => {}
        }
    }
    all
}

fn of_row(row: &ListedSandbox, name: &str, id: Option<&str>) -> Use {
    let alias = row.alias.as_deref().filter(|alias| !alias.is_empty());
    let own = template_part(&row.template_id);
    if alias.is_some_and(|alias| bare(alias) == name) || (!own.is_empty() && bare(own) == name) {
        return Use::Yes;
    }
    match (id, alias) {
        (Some(id), _) if own == id => Use::Yes,
        (Some(_), _) if !own.is_empty() => Use::No,
        (_, Some(_)) => Use::No,
        _ => Use::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(template: &str, alias: Option<&str>) -> ListedSandbox {
        serde_json::from_value(json!({
            "templateID": template, "sandboxID": "i1", "clientID": "c", "startedAt": "", "endAt": "", "cpuCount": 1,
            "memoryMB": 1, "diskSizeMB": 1, "state": "paused", "envdVersion": "0.6.13", "alias": alias,
        }))
        .unwrap()
    }

    #[test]
    fn a_sandbox_uses_what_it_names_and_maybe_what_it_does_not() {
        for (template, alias, id, used) in [
            ("t1", Some("warm"), None, Use::Yes),
            ("t1", Some("team/warm:v2"), None, Use::Yes),
            ("team/warm:default", None, None, Use::Yes),
            ("t1", None, Some("t1"), Use::Yes),
            ("t1:default", None, Some("t1"), Use::Yes),
            ("t2", None, Some("t1"), Use::No),
            ("t2", Some("cold"), None, Use::No),
            ("t2", None, None, Use::Unknown),
            ("", None, Some("t1"), Use::Unknown),
        ] {
            assert_eq!(usage(&[row(template, alias)], "warm", id), used, "{template} {alias:?} {id:?}");
        }
        assert_eq!(usage(&[], "warm", None), Use::No);
        assert_eq!(usage(&[row("t2", None), row("t1", Some("warm"))], "warm", None), Use::Yes);
    }
}
