//! The services: a process in the outside's namespace.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sandbar_rig::wire::SOCKET;
use sandbar_rig::{TCP_PORTS, UDP_PORTS};
use tokio::net::UnixListener;
use tokio::task::JoinSet;

use crate::authority::Authority;
use crate::capture::Capture;
use crate::control::Control;
use crate::ledger::{Ledger, lock};
use crate::state::State;
use crate::{network, tcp, udp};

/// What is written to standard output once everything serves.
pub(crate) const READY: &str = "ready\n";
/// The certificate of the rig's authority, in its folder.
pub(crate) const AUTHORITY: &str = "ca.pem";

/// Both families.
const ANY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

/// Who listens.
#[derive(Debug, Default)]
pub(crate) struct Services {
    tasks: Mutex<JoinSet<()>>,
    ports: Mutex<HashSet<u16>>,
}

impl Services {
    /// Listens on a TCP port, unless somebody does.
    pub(crate) fn listen(&self, port: u16, state: &Arc<State>) -> Result<(), String> {
        if !lock(&self.ports).insert(port) {
            return Ok(());
        }
        for any in ANY {
            let listener = tcp::open(any, port).map_err(|e| format!("listen on TCP port {port}: {e}"))?;
            lock(&self.tasks).spawn(tcp::serve(listener, Arc::clone(state)));
        }
        Ok(())
    }

    fn udp(&self, port: u16, state: &Arc<State>) -> Result<(), String> {
        for any in ANY {
            let socket = udp::open(any, port).map_err(|e| format!("open UDP port {port}: {e}"))?;
            lock(&self.tasks).spawn(udp::serve(socket, Arc::clone(state)));
        }
        Ok(())
    }
}

/// Serves for ever: the end of the process namespace is the end.
pub(crate) fn serve(folder: &OsStr) -> Result<(), String> {
    network::enter_outside()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("start a runtime: {e}"))?;
    runtime.block_on(services(Path::new(folder)))
}

async fn services(folder: &Path) -> Result<(), String> {
    let ledger = Arc::new(Ledger::default());
    let capture = Capture::open(Arc::clone(&ledger)).map_err(|e| format!("open a packet socket: {e}"))?;
    let authority = Authority::new(&folder.join(AUTHORITY))?;
    let state = Arc::new(State::new(ledger, authority));
    let services = Arc::new(Services::default());
    for port in TCP_PORTS {
        services.listen(*port, &state)?;
    }
    for port in UDP_PORTS {
        services.udp(*port, &state)?;
    }
    network::link_up()?;
    let socket = folder.join(SOCKET);
    let listener =
        UnixListener::bind(&socket).map_err(|e| format!("listen on `{}`: {e}", socket.display()))?;
    // Tests run as whoever they are about.
    fs::set_permissions(&socket, Permissions::from_mode(0o777))
        .map_err(|e| format!("open `{}` to all: {e}", socket.display()))?;
    let control = Arc::new(Control::new(state, capture, services));
    print!("{READY}");
    std::io::stdout().flush().map_err(|e| format!("say that all serves: {e}"))?;
    control.serve(listener).await;
    Ok(())
}
