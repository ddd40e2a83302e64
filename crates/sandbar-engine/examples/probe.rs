//! Stands in for the agent in tests: does what its configuration says and writes what it saw to the log.

fn main() {
    let task = std::fs::read_to_string("/proc/self/fd/3").unwrap_or_default();
    println!("{{\"task\": \"{task}\"}}");
    if let Ok(m) = std::fs::read_to_string("/proc/self/mountinfo") { eprintln!("{m}"); }
}
