//! The agent's roles as a program of their own, for tests: `agent` with inherited descriptors, or
//! `agent sudo SOCKET ARGUMENT…`.

fn main() {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|role| role == "sudo") {
        let socket = args.next().unwrap_or_default();
        std::process::exit(sandbar_agent::sudo::client::run(socket.as_ref(), args.collect()));
    }
    sandbar_agent::main_from_handover()
}
