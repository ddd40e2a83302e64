//! Ways out that are asked of the kernel, and that the probe has no safe words for.

use sandbar_core::{Command, EgressPolicy};

use crate::bed::{Bed, in_rig, users};

/// Each call as `what, number, arguments`; prints what was not refused.
const SCRIPT: &str = r#"
import ctypes, os, platform, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
intel = platform.machine() == "x86_64"
CALLS = {"bpf": 321 if intel else 280, "unshare": 272 if intel else 97, "setns": 308 if intel else 268,
         "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435,
         "pidfd_getfd": 438, "pidfd_open": 434, "mount": 165 if intel else 40, "userfaultfd": 323 if intel else 282}
done = []
def call(what, name, *arguments):
    child = os.fork()
    if child == 0:
        got = libc.syscall(ctypes.c_long(CALLS[name]), *arguments)
        os._exit(0 if got >= 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        done.append(what)
room = ctypes.create_string_buffer(256)
call("io_uring", "io_uring_setup", 8, room)
call("io_uring enter", "io_uring_enter", 0, 0, 0, 0, None, 0)
call("io_uring register", "io_uring_register", 0, 0, room, 1)
# A map of one entry, and a socket filter of one instruction.
attr = ctypes.create_string_buffer(128)
attr[0:16] = (2).to_bytes(4, "little") + (4).to_bytes(4, "little") + (4).to_bytes(4, "little") + (1).to_bytes(4, "little")
call("bpf map", "bpf", 0, attr, 128)
for what, flags in [("net", 0x40000000), ("user", 0x10000000), ("user and net", 0x50000000), ("mount", 0x20000),
                    ("all", 0x7e020000)]:
    call("unshare " + what, "unshare", flags)
own = os.open("/proc/self/ns/net", os.O_RDONLY)
call("setns", "setns", own, 0x40000000)
try:
    first = os.open("/proc/1/ns/net", os.O_RDONLY)
    call("setns of the first process", "setns", first, 0)
except OSError:
    pass
call("clone3", "clone3", room, 88)
call("userfaultfd", "userfaultfd", 0)
for program in (["unshare", "-rn", "true"], ["nsenter", "-t", "1", "-n", "true"], ["ip", "link", "add", "d0", "type", "dummy"],
                ["ip", "route", "add", "default", "dev", "lo"], ["nft", "flush", "ruleset"], ["iptables", "-F"], ["sysctl", "-w", "net.ipv4.ip_forward=1"]):
    try:
        if subprocess.run(program, capture_output=True, timeout=10).returncode == 0:
            done.append(" ".join(program))
    except (FileNotFoundError, PermissionError, subprocess.TimeoutExpired):
        pass
for what, arguments in [("tun", "/dev/net/tun"), ("raw memory", "/dev/mem")]:
    try:
        os.mknod("/tmp/device", 0o600 | 0o020000, os.makedev(10, 200))
        os.open("/tmp/device", os.O_RDWR)
        done.append(what + " by mknod")
    except OSError:
        pass
    try:
        os.open(arguments, os.O_RDWR)
        done.append(what)
    except OSError:
        pass
for option, value in [("bind to a device", 25), ("mark", 36), ("transparent", 19)]:
    try:
        with socket.socket() as s:
            level = socket.SOL_IP if option == "transparent" else socket.SOL_SOCKET
            s.setsockopt(level, value, b"eth0\0" if value == 25 else 1)
            # A device that is not there, and marks that nothing reads, lead nowhere; routes by them would.
            s.settimeout(2)
            s.connect(("1.1.1.1", 443))
            done.append(option)
    except OSError:
        pass
print("\n".join(done))
"#;

#[test]
fn the_kernel_refuses_what_leads_out() {
    in_rig("kernel::the_kernel_refuses_what_leads_out", async || {
        let bed = Bed::new();
        let sandbox = bed.sandbox(EgressPolicy::DenyAll).await;
        for user in users() {
            let output =
                sandbox.run_as(user, &Command::new("python3").args(["-c", SCRIPT]), Vec::new()).await;
            assert!(output.status.is_success(), "as {user:?}: {}", output.stderr_lossy());
            assert_eq!(output.stdout_lossy().trim(), "", "as {user:?}");
        }
        sandbox.destroy().await;
    });
}
