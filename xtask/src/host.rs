//! What the tests need of the host.

use std::path::Path;
use std::process::Command;

use crate::run::run;

/// Program, or file by its path, that a test needs, and the Debian package that has it. The tests say why they skip where one is missing.
const PROGRAMS: &[(&str, &str)] = &[
    ("newuidmap", "uidmap"),
    ("ip", "iproute2"),
    ("curl", "curl"),
    ("wget", "wget"),
    ("/etc/ssl/certs/ca-certificates.crt", "ca-certificates"),
    ("setpriv", "util-linux"),
    ("python3", "python3"),
    ("/usr/lib/python3/dist-packages/pip", "python3-pip"),
    ("/usr/lib/python3/dist-packages/requests", "python3-requests"),
    ("/usr/lib/python3/dist-packages/websockets", "python3-websockets"),
    ("gcc", "gcc"),
    ("make", "make"),
    ("git", "git"),
    ("strace", "strace"),
    ("busybox", "busybox-static"),
    ("debootstrap", "debootstrap"),
    ("tmux", "tmux"),
    ("vim", "vim"),
    ("nano", "nano"),
    ("htop", "htop"),
    ("javac", "default-jdk-headless"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("openssl", "openssl"),
    ("postgres", "postgresql"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.xfs", "xfsprogs"),
];

/// What benchmarks compare with.
const PEERS: &[(&str, &str)] = &[
    ("bwrap", "bubblewrap"),
    ("setpriv", "util-linux"),
    ("tar", "tar"),
    ("python3", "python3"),
    ("/usr/lib/python3/dist-packages/pip", "python3-pip"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.xfs", "xfsprogs"),
];

/// Installs what the tests miss where that can be done (as root, on Debian and its kind), and says what stays missing.
pub(crate) fn prepare() -> Result<(), String> {
    install(PROGRAMS, "tests that need them say so and skip")
}

/// The same for benchmarks.
pub(crate) fn prepare_peers() -> Result<(), String> {
    install(PEERS, "rows that compare with them say so")
}

fn install(programs: &[(&str, &str)], otherwise: &str) -> Result<(), String> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !on_path(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    if is_root() && on_path("apt-get") {
        run(Command::new("apt-get").args(["update", "-qq"]))?;
        return run(Command::new("apt-get")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(packages));
    }
    eprintln!("xtask: not on this machine: {} ({otherwise})", packages.join(", "));
    Ok(())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// Whether `program` is in a folder of `PATH`, or in the places where Debian puts versioned servers.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What has a path of its own is not looked for in the folders: joining leaves it as it is.
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    found || (program == "postgres" && Path::new("/usr/lib/postgresql").is_dir())
}
