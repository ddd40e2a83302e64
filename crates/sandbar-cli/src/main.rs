//! The `sandbar` executable.

fn main() -> std::process::ExitCode {
    sandbar_cli::main()
}
