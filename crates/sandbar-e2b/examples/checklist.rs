//! Prints `docs/e2b-checklist.md`.

#[path = "../tests/checklist/document.rs"]
mod document;

fn main() {
    print!("{}", document::document());
}
