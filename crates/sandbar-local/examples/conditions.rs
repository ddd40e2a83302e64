//! Prints the table of host conditions as a document. `cargo xtask gen` makes `docs/doctor.md` with it.

fn main() {
    print!("{}", sandbar_local::conditions_document());
}
