//! The two namespaces' addresses and routes. The outside holds every address there is, except those of the link.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use sandbar_rig::{HOST, HOST_BRIDGE, HOST_V6, NEIGHBOUR, ROUTER, ROUTER_V6, Reach};

/// How long a new link may take to carry.
const CARRIER: Duration = Duration::from_secs(5);
/// Between two looks at the link.
const LOOK: Duration = Duration::from_millis(2);
/// The outside's end of the link.
const OUTER: &str = "rig0";
/// The host's end of the link.
const INNER: &str = "rig1";

/// Sets up what the host's namespace has without a link. The first process of the rig is in it.
pub(crate) fn prepare_host() -> Result<(), String> {
    settings(&["ipv4/ip_unprivileged_port_start=0"])?;
    common_settings()?;
    ip(&[], &format!("link set lo up\naddress add {HOST_BRIDGE}/32 dev lo\n"))
}

/// Moves this process into a namespace of its own, which stands for the outside.
pub(crate) fn enter_outside() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| format!("make a network namespace: {e}"))?;
    settings(&[
        "ipv4/ip_unprivileged_port_start=0",
        "ipv4/icmp_ratelimit=0",
        "ipv6/icmp/ratelimit=0",
        // Only a router says that a host can't be reached.
        "ipv4/ip_forward=1",
        // An answer goes out from an address that was never given to an interface.
        "ipv6/ip_nonlocal_bind=1",
    ])?;
    common_settings()?;
    // All addresses are local, so that whatever is tried arrives. `throw` leaves those of the link to the next table; IPv4 has a next
    // table only where there is a rule (until then the kernel keeps local and main routes in one).
    ip(
        &[],
        "link set lo up\n\
         rule add pref 32000 lookup main\n\
         route add local 0.0.0.0/0 dev lo table local\n\
         route add throw 10.77.0.0/24 table local\n\
         route add local ::/0 dev lo table local\n\
         route add throw fd77::/64 table local\n\
         route add throw fe80::/10 table local\n",
    )
}

/// Joins host and outside. The calling process is outside.
pub(crate) fn link_up() -> Result<(), String> {
    ip(
        &[],
        &format!(
            "link add {OUTER} type veth peer name {INNER} netns 1\n\
             address add {ROUTER}/24 dev {OUTER}\n\
             address add {NEIGHBOUR}/32 dev {OUTER}\n\
             address add {ROUTER_V6}/64 dev {OUTER} nodad\n\
             address add fe80::a9fe:a9fe/64 dev {OUTER} nodad\n\
             link set {OUTER} up\n"
        ),
    )?;
    ip(
        HOST_SIDE,
        &format!(
            "address add {HOST}/24 dev {INNER}\n\
             address add {HOST_V6}/64 dev {INNER} nodad\n\
             link set {INNER} up\n\
             route add 0.0.0.0/0 via {ROUTER}\n\
             route add ::/0 via {ROUTER_V6}\n"
        ),
    )?;
    // A packet sent before the link carries is lost, and its next try is a second away.
    carries(&[], OUTER)?;
    carries(HOST_SIDE, INNER)
}

/// Cuts the host off: with the link go its routes, so a dial fails at once.
pub(crate) fn link_down() -> Result<(), String> {
    ip(&[], &format!("link delete {OUTER}\n"))
}

/// Lets packets to an address arrive, or not. The calling process is outside.
pub(crate) fn set_reach(address: IpAddr, reach: Reach) -> Result<(), String> {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    // The route that all addresses have is there again without one of its own. There may be none: that is no failure.
    for kind in ["unreachable", "blackhole"] {
        let _ = ip(&[], &format!("route delete {kind} {address}/{prefix} table local\n"));
    }
    let kind = match reach {
        Reach::Open => return Ok(()),
        Reach::Unreachable => "unreachable",
        Reach::Silent => "blackhole",
    };
    ip(&[], &format!("route add {kind} {address}/{prefix} table local\n"))
}

/// How to run a program in the host's namespace.
const HOST_SIDE: &[&str] = &["nsenter", "--net=/proc/1/ns/net", "--"];

fn carries(prefix: &[&str], name: &str) -> Result<(), String> {
    let end = Instant::now() + CARRIER;
    loop {
        let words: Vec<&str> = prefix.iter().copied().chain(["ip", "-o", "link", "show", name]).collect();
        let output =
            Command::new(words[0]).args(&words[1..]).output().map_err(|e| format!("run `ip`: {e}"))?;
        if String::from_utf8_lossy(&output.stdout).contains("state UP") {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(format!("link `{name}` does not carry after {CARRIER:?}"));
        }
        std::thread::sleep(LOOK);
    }
}

fn common_settings() -> Result<(), String> {
    settings(&[
        "ipv4/conf/all/rp_filter=0",
        "ipv4/conf/default/rp_filter=0",
        "ipv6/conf/all/disable_ipv6=0",
        "ipv6/conf/default/disable_ipv6=0",
        "ipv6/conf/default/accept_dad=0",
    ])
}

fn settings(settings: &[&str]) -> Result<(), String> {
    for setting in settings {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        fs::write(format!("/proc/sys/net/{name}"), value).map_err(|e| format!("set `net/{setting}`: {e}"))?;
    }
    Ok(())
}

fn ip(prefix: &[&str], script: &str) -> Result<(), String> {
    let words: Vec<&str> = prefix.iter().copied().chain(["ip", "-batch", "-"]).collect();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("run `{}`: {e}; it comes with iproute2 or util-linux", words[0]))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(|e| format!("write to `ip`: {e}"))?;
    }
    let output = child.wait_with_output().map_err(|e| format!("wait for `ip`: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`ip`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
