//! What the `sandbar` executable is made of; a library, so that the fuzz targets reach its parsers. Nothing here is for others: the library
//! for users is `sandbar`.

mod app;
mod args;
mod commands;
mod env;
mod exit;
mod failure;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host_limits;
mod observing;
mod output;
mod relay;
mod role;
mod settings;
mod signals;
mod stdio;
mod tar;
mod terminal;
mod transfer;
mod value;

/// The executable, from its start to its exit code. Which role it plays is told by the name that it is started under; the command line is one
/// of them.
pub fn main() -> std::process::ExitCode {
    // First of all: shim and agent pay for nothing of the command line.
    role::play();
    app::main().into()
}
