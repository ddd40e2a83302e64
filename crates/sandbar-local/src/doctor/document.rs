use std::fmt::Write as _;

use super::condition::{Condition, Fault, Mend, Weight};
use super::table::CONDITIONS;

/// The table of conditions as the document `docs/doctor.md`.
pub fn conditions_document() -> String {
    let mut text = HEAD.to_owned();
    for condition in CONDITIONS {
        section(&mut text, condition);
    }
    text
}

const HEAD: &str = "\
# What sandboxes need of a machine

<!-- Made by `cargo xtask gen` from the table in `crates/sandbar-local/src/doctor/table`; do not edit. -->

`sandbar doctor` looks at each of these, `sandbar doctor --json` in the form of [0004](decisions/0004-json.md). Where the creation of a sandbox fails for one
of them, its error has the same words, and where a sandbox was made in spite of one, `sandbar describe` has them too.

*needed*: no sandbox without it; *recommended*: a wall or a limit is weaker without it; *optional*: a feature is missing without it. *warning*: the
condition holds in part. Commands are shown for root; elsewhere than as root `doctor` puts `sudo` before them, and it fills in `{user}`,
`{uid}`, `{ids}` (a range of subordinate ids that nobody has), `{home}` (the data folder), `{parent}` (the folder that it is in), `{helper}` (the `sandbar` executable) and `{covers}` (what lies over `/proc`). `IMAGE`
is the container's image, with its own arguments behind it. How to run sandboxes in a container: [containers.md](containers.md).
";

fn section(text: &mut String, condition: &Condition) {
    let Condition { id, title, need, cost, faults } = condition;
    // Writing to a string can't fail.
    let _ = writeln!(text, "\n## `{id}` ({})\n\n{}. Without it: {cost}.\n", need.as_str(), capital(title));
    for fault in *faults {
        entry(text, fault);
    }
}

fn entry(text: &mut String, fault: &Fault) {
    let Fault { id, says, weight, mends } = fault;
    let weight = match weight {
        Weight::Missing => "",
        Weight::Warning => " (warning)",
    };
    let _ = writeln!(text, "- `{id}`{weight}: {says}");
    for mend in *mends {
        let _ = writeln!(text, "  - {}", command(*mend));
    }
}

fn command(mend: Mend) -> String {
    match mend {
        Mend::Root(text) => format!("as root: `{text}`"),
        Mend::Host(text) => format!("as root, where this is no container: `{text}`"),
        Mend::Systemd(text) => format!("as root, where systemd runs the machine: `{text}`"),
        Mend::SystemdUser(text) => format!("as this user, where systemd runs the machine: `{text}`"),
        Mend::Container(text) => format!("in a container, where it is started: `{text}`"),
        Mend::User(text) => format!("as this user: `{text}`"),
        Mend::HostUser(text) => format!("as this user, where this is no container: `{text}`"),
        Mend::Setting(setting) => {
            format!("as root, in a container of its host: `{}`", super::wording::keep_setting(setting))
        }
        Mend::Package(package) => {
            let names = [
                ("Debian", package.debian),
                ("Fedora", package.fedora),
                ("Arch", package.arch),
                ("Alpine", package.alpine),
                ("SUSE", package.suse),
            ];
            let names: Vec<String> = names
                .iter()
                .filter(|(_, name)| !name.is_empty())
                .map(|(family, name)| format!("{family} `{name}`"))
                .collect();
            format!("install the package: {}", names.join(", "))
        }
    }
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_is_current() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
        let text = std::fs::read_to_string(path).expect("docs/doctor.md");
        assert!(
            text == super::conditions_document(),
            "docs/doctor.md is not what the table says: run `cargo xtask gen`"
        );
    }
}
