//! A subset of the POSIX shell: lists, `&&`, `||`, pipelines, `&`, redirections, variables, command substitution, quoting, `if`, `while`,
//! `until`, `for`, `{ }`, `( )`. What it does not know is a syntax error with exit code 2, as in a real shell. Not emulated: patterns,
//! arithmetic, here-documents, functions, `case`, `trap`, job control.

mod ast;
mod builtin;
mod expand;
mod parse;
mod run;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use parse::parse_script;
pub(super) use run::{main, script};
