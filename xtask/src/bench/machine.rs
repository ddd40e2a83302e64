use std::fs;
use std::process::Command;

/// What was measured where and when, in Markdown. Nothing that names the machine itself.
pub(super) fn describe() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|rest| rest.trim_start_matches([':', '\t', ' ']).trim().to_owned())
    };
    let model = field(&cpus, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let kib = memory.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0);
    let commit = printed(Command::new("git").current_dir(crate::run::workspace()).args([
        "rev-parse",
        "--short",
        "HEAD",
    ]));
    let changed = printed(Command::new("git").current_dir(crate::run::workspace()).args([
        "status",
        "--porcelain",
        "-uno",
    ]));
    let changed = if changed.is_empty() { "" } else { ", with changes" };
    format!(
        "- kernel {}, {count} x {model}, {} GiB of memory\n- {}, commit {commit}{changed}\n",
        kernel.trim(),
        kib.div_ceil(1 << 20),
        printed(Command::new("date").args(["-u", "+%Y-%m-%d"])),
    )
}

fn printed(command: &mut Command) -> String {
    command
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}
