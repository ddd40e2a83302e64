//! A default sandbox reaches no network at all, and only published ports reach in.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::harness::{Home, Who, marker};

/// Dials only after it saw that there is no interface but `lo`: the namespace then has no way out by construction.
const DIAL: &str = r#"
import errno, json, os, socket, sys
seen = {"interfaces": [name for _, name in socket.if_nameindex()], "routes": open("/proc/net/route").read().split("\n")[1:]}
if seen["interfaces"] == ["lo"]:
    def dial(family, kind, address):
        s = socket.socket(family, kind)
        s.settimeout(3)
        try:
            s.connect(address)
            if kind == socket.SOCK_DGRAM: s.send(b"x")
            return "ok"
        except OSError as e:
            return errno.errorcode.get(e.errno, str(e))
    for address in ("1.1.1.1", "8.8.8.8", "169.254.169.254", "10.0.0.1", "192.168.1.1", "100.64.0.1", "224.0.0.1"):
        for port in (443, 80, 53):
            seen[f"tcp {address}:{port}"] = dial(socket.AF_INET, socket.SOCK_STREAM, (address, port))
            seen[f"udp {address}:{port}"] = dial(socket.AF_INET, socket.SOCK_DGRAM, (address, port))
    for address in ("2606:4700:4700::1111", "fe80::1", "64:ff9b::101:101"):
        seen[f"tcp {address}"] = dial(socket.AF_INET6, socket.SOCK_STREAM, (address, 443))
    seen["host loopback"] = dial(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(sys.argv[1])))
    seen["host loopback as 0.0.0.0"] = dial(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", int(sys.argv[1])))
    seen["host abstract socket"] = dial(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + sys.argv[2])
print(json.dumps(seen))
"#;

#[test]
fn nothing_outside_is_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = listener.local_addr().expect("its address").port().to_string();
    let word = marker();
    let address = SocketAddr::from_abstract_name(&word).expect("a name");
    let abstract_listener = UnixListener::bind_addr(&address).expect("an abstract socket");
    let home = Home::new();
    for who in Who::all() {
        let seen = home.python(*who, DIAL, &[&port, &word]);
        assert_eq!(seen["interfaces"], serde_json::json!(["lo"]), "{who:?}");
        for (what, outcome) in seen.as_object().expect("a table") {
            if what != "interfaces" && what != "routes" {
                assert_ne!(outcome, "ok", "{who:?} reached {what}");
            }
        }
        assert!(seen.as_object().expect("a table").len() > 40, "the legs were tried: {seen}");
    }
    listener.set_nonblocking(true).expect("non-blocking");
    assert!(listener.accept().is_err(), "something arrived at the host's loopback");
    abstract_listener.set_nonblocking(true).expect("non-blocking");
    assert!(abstract_listener.accept().is_err(), "something arrived at the host's abstract socket");
}

#[test]
fn routes_and_interfaces_can_be_listed_and_not_changed() {
    let home = Home::new();
    for who in Who::all() {
        let seen = home.python(
            *who,
            r#"
import fcntl, json, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def attempt(action):
    try:
        action(); return "ok"
    except OSError as e:
        return e.errno
print(json.dumps({
  "list": [n for _, n in socket.if_nameindex()],
  "down": attempt(lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0))),
  "tun": attempt(lambda: open("/dev/net/tun", "rb")),
  "own port": attempt(lambda: socket.create_server(("127.0.0.1", 8123)).close()),
}))
"#,
            &[],
        );
        assert_eq!(seen["list"], serde_json::json!(["lo"]));
        assert_eq!(seen["down"], 1, "{who:?}: EPERM");
        assert_eq!(seen["tun"], 2, "{who:?}: ENOENT");
        assert_eq!(seen["own port"], "ok", "{who:?}: a server inside works");
    }
}
