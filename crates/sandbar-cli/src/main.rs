//! The `sandbar` executable. Which role it plays is told by the name that it is started under; the command line is one of them.

mod app;
mod args;
mod commands;
mod env;
mod exit;
mod failure;
mod host_limits;
mod output;
mod relay;
mod role;
mod settings;
mod signals;
mod stdio;
mod tar;
mod transfer;
mod value;

fn main() -> std::process::ExitCode {
    // First of all: shim and agent pay for nothing of the command line.
    role::play();
    app::main().into()
}
