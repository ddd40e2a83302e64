use std::fmt::Write as _;

use super::Part;

const HEAD: &[&str] =
    &["what", "unit", "p50", "p95", "p99", "worked", "peer: p50 / p95 / p99", "ratio", "bar", "repeat"];

/// The page, as it is written and printed.
pub(super) fn render(parts: &[Part], machine: &str) -> String {
    let mut page = String::from(
        "# Benchmarks\n\n\
         Made by `cargo xtask bench --write`; edited by nobody. Ours and the peer's are measured in turns, in the same run, on the same machine. The \
         ratio is of the medians. Of rates a percentile is what was reached or exceeded so often. A bar is what the product aims at; a missed one \
         fails nothing.\n\n",
    );
    page.push_str(machine);
    for Part { title, rows } in parts {
        let _ = write!(page, "\n## {title}\n\n| {} |\n|{}\n", HEAD.join(" | "), "---|".repeat(HEAD.len()));
        for row in rows {
            let _ = writeln!(page, "| {} |", row.cells().join(" | ").replace("tar | tar", "tar \\| tar"));
        }
    }
    page
}
