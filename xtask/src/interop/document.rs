use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::column::{Column, Outcome, Verdict};
use super::deviations::Deviations;
use crate::run::workspace;

const HEAD: &str = "\
# Compatibility

What the official packages of E2B do with `sandbar serve`: each of them unmodified, as npm and PyPI have it, told by three environment variables where the
server is. `cargo xtask interop --full --write` makes this page of what it sees; `cargo xtask test` runs the newest and the oldest release in
full and the others in part, and fails where the page says otherwise.

✓ passes · – the release does not have it · ✗ [does not pass](#what-does-not-pass), for the reason there · empty: not tried

Cases that are called `bug-N` are of bugs that were reported in public of E2B or of others that speak its protocol. The cases are in
[`interop/`](../interop/README.md).
";

const PASSES: &str = "✓";
const ABSENT: &str = "–";
const DEVIATES: &str = "✗";

/// Case, and what each release made of it.
type Table = BTreeMap<String, BTreeMap<String, String>>;

/// `docs/compatibility.md`: tables of cases and releases. It is read again as it was written, so the page is its own record.
pub(super) struct Document {
    /// What stands on the page.
    text: String,
    /// In the order of the page: title, releases, cells.
    tables: Vec<(String, Vec<String>, Table)>,
    differences: Vec<String>,
}

impl Document {
    pub(super) fn read() -> Result<Self, String> {
        let path = path();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            other => other.map_err(|e| format!("{}: {e}", path.display()))?,
        };
        let mut tables: Vec<(String, Vec<String>, Table)> = Vec::new();
        for line in text.lines() {
            if let Some(title) = line.strip_prefix("## `") {
                tables.push((format!("`{title}"), Vec::new(), Table::new()));
            }
            let Some((_, releases, table)) = tables.last_mut() else { continue };
            let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
            let mut cells = row.split(" | ").map(str::trim);
            let Some(first) = cells.next() else { continue };
            if releases.is_empty() {
                *releases = cells.map(str::to_owned).collect();
            } else {
                let filled = releases
                    .iter()
                    .cloned()
                    .zip(cells.map(str::to_owned))
                    .filter(|(_, cell)| !cell.is_empty());
                table.insert(first.to_owned(), filled.collect());
            }
        }
        Ok(Self { text, tables, differences: Vec::new() })
    }

    /// Takes what a column made of its cases. One that ran whole replaces what stood there.
    pub(super) fn take(
        &mut self,
        column: &Column,
        outcomes: &[Outcome],
        deviations: &Deviations,
        is_whole: bool,
    ) {
        let title = column.table();
        let index = self.tables.iter().position(|(other, ..)| *other == title).unwrap_or_else(|| {
            self.tables.push((title.clone(), Vec::new(), Table::new()));
            self.tables.len() - 1
        });
        let (_, releases, table) = &mut self.tables[index];
        let is_new = !releases.contains(&column.release);
        if is_new {
            releases.push(column.release.clone());
            self.differences.push(format!("docs/compatibility.md has no column for {}", column.name()));
        }
        if is_whole {
            for (case, cells) in table.iter_mut() {
                let is_gone = outcomes.iter().all(|outcome| outcome.case != *case);
                if is_gone && cells.remove(&column.release).is_some() {
                    self.differences.push(format!(
                        "docs/compatibility.md has `{case}` in {}, which was not run",
                        column.name()
                    ));
                }
            }
        }
        for outcome in outcomes {
            let cell = match (outcome.verdict, deviations.of(column, &outcome.case)) {
                (Verdict::Passed, _) => PASSES,
                (Verdict::Absent, _) => ABSENT,
                (Verdict::Failed, Some(_)) => DEVIATES,
                // What fails unexpectedly is a complaint of its own, and what was skipped says nothing.
                (Verdict::Failed, None) | (Verdict::Skipped, _) => continue,
            };
            let cells = table.entry(outcome.case.clone()).or_default();
            let before = cells.insert(column.release.clone(), cell.to_owned());
            if before.as_deref() != Some(cell) && !is_new {
                self.differences.push(format!(
                    "docs/compatibility.md says `{}` of `{}` in {}, and it is `{cell}`; `cargo xtask interop --full --write` makes it anew",
                    before.unwrap_or_default(),
                    outcome.case,
                    column.name()
                ));
            }
        }
    }

    /// Drops what is in no list of releases any more, and puts the rest in their order.
    pub(super) fn keep_only(&mut self, columns: &[Column]) {
        for (title, releases, table) in &mut self.tables {
            let kept: Vec<String> = columns
                .iter()
                .filter(|column| column.table() == *title && releases.contains(&column.release))
                .map(|column| column.release.clone())
                .collect();
            for cells in table.values_mut() {
                cells.retain(|release, _| kept.contains(release));
            }
            table.retain(|_, cells| !cells.is_empty());
            *releases = kept;
        }
        self.tables.retain(|(_, releases, _)| !releases.is_empty());
        let order = |title: &str| columns.iter().position(|column| column.table() == title);
        self.tables.sort_by_key(|(title, ..)| order(title));
    }

    /// Where the page says otherwise than what was seen.
    pub(super) fn differences(&self) -> Vec<String> {
        self.differences.clone()
    }

    /// Whether the page is as it is written of its own cells: nobody changed it by hand.
    pub(super) fn is_as_rendered(&self, deviations: &Deviations) -> Result<(), String> {
        if self.render(deviations) == self.text {
            return Ok(());
        }
        Err("docs/compatibility.md is not as it is made; `cargo xtask interop --full --write` makes it anew"
            .into())
    }

    pub(super) fn write(&self, deviations: &Deviations) -> Result<(), String> {
        let path = path();
        fs::write(&path, self.render(deviations)).map_err(|e| format!("{}: {e}", path.display()))?;
        eprintln!("xtask: wrote docs/compatibility.md");
        Ok(())
    }

    fn render(&self, deviations: &Deviations) -> String {
        let mut text = HEAD.to_owned();
        for (title, releases, table) in &self.tables {
            let _ = write!(
                text,
                "\n## {title}\n\n| case | {} |\n|---|{}\n",
                releases.join(" | "),
                "---|".repeat(releases.len())
            );
            for (case, cells) in table {
                let cells: Vec<&str> =
                    releases.iter().map(|release| cells.get(release).map_or("", String::as_str)).collect();
                let _ = writeln!(text, "| {case} | {} |", cells.join(" | "));
            }
        }
        text.push_str("\n## What does not pass\n\n");
        for (case, column, why) in deviations.iter() {
            let column = column.map(|part| format!(" (`{part}`)")).unwrap_or_default();
            let _ = writeln!(text, "- {case}{column}: {why}");
        }
        if deviations.iter().next().is_none() {
            text.push_str("Nothing.\n");
        }
        text
    }
}

fn path() -> PathBuf {
    workspace().join("docs/compatibility.md")
}
