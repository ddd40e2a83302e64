use std::fmt::Write as _;

/// The rows as they are written.
const ROWS: &str = include_str!("rows.txt");

/// One behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) behaviour: &'static str,
    pub(crate) test: &'static str,
    pub(crate) verdict: &'static str,
}

/// All of them.
pub(crate) fn rows() -> Vec<Row> {
    let lines = ROWS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [id, behaviour, test, verdict] = cells[..] else { panic!("not four cells: {line}") };
            Row { id, behaviour, test, verdict }
        })
        .collect()
}

/// The page.
pub(crate) fn document() -> String {
    let mut page = String::from(
        "# What the field's reference for E2B does, and what we do\n\n\
         Made by `cargo xtask gen` of `crates/sandbar-e2b/tests/checklist/rows.txt`; a test looks that each test that is named is there. `kit` is a case of the conformance kit on\n\
         this backend, by way of our own server; `wire` and `server` are tests of `sandbar-e2b`, `lib` of its sources, `guest` of `sandbar-guest`, `facade` of `sandbar`.\n\
         W and a number is a weakness of the reference that is none here.\n\n\
         | | behaviour | test | verdict |\n|---|---|---|---|\n",
    );
    for Row { id, behaviour, test, verdict } in rows() {
        let test = if test == "-" { String::new() } else { format!("`{test}`") };
        let _ = writeln!(page, "| {id} | {behaviour} | {test} | {verdict} |");
    }
    page
}
