use std::fmt::Write;

use crate::output::escape;

/// Longest cell, in characters: what is longer is cut, as one of somebody else's would spoil the whole table. `--json` has all of it.
const MAX_CELL: usize = 200;

/// Rows below headings, each column as wide as its widest cell. Cells are escaped and cut here.
pub(crate) fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let escaped = rows.iter().map(|row| row.each_ref().map(|cell| cut(&escape(cell))));
    let rows: Vec<_> = std::iter::once(headings.map(str::to_owned)).chain(escaped).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string can't fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn cut(cell: &str) -> String {
    match cell.char_indices().nth(MAX_CELL) {
        None => cell.to_owned(),
        Some((end, _)) => format!("{}…", &cell[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_are_escaped() {
        let rows = [["a\nb".to_owned(), "1".to_owned()], ["c".to_owned(), String::new()]];
        assert_eq!(columns(["ONE", "TWO"], &rows), "ONE   TWO\na\\nb  1\nc\n");
    }

    #[test]
    fn long_cells_are_cut() {
        let rows = [["é".repeat(100_000), "x".repeat(MAX_CELL)]];
        let text = columns(["ONE", "TWO"], &rows);
        assert!(text.contains(&format!("{}…  {}\n", "é".repeat(MAX_CELL), "x".repeat(MAX_CELL))));
    }
}
