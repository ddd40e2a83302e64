use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, UdpSocket, UnixListener};
use tokio::task::JoinSet;

use super::form::GROUP;
use super::surroundings::HostListeners;
use crate::id::random_text;

/// Most addresses of interfaces that are listened on: a machine with more bridges has them all behind the same wall.
const MAX_INTERFACES: usize = 8;
/// How long a caller may take to read the token.
const PATIENCE: Duration = Duration::from_secs(1);
/// Characters of the token and of the sockets' names: nobody guesses them.
const TOKEN_LENGTH: usize = 24;

/// Services of the host on its own addresses, for the time of the check. They say a word to whoever connects, and read nothing.
#[derive(Debug)]
pub(crate) struct HostPost {
    listeners: HostListeners,
    /// Ends with this value.
    _services: JoinSet<()>,
}

impl HostPost {
    /// Listens wherever this host can be addressed.
    pub(crate) async fn open() -> io::Result<Self> {
        let token = random_text(TOKEN_LENGTH)?;
        let word: Arc<[u8]> = token.as_bytes().into();
        let mut services = JoinSet::new();
        let mut listeners = HostListeners { token: token.clone(), ..HostListeners::default() };
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            // A host without version 6 has one address less to be reached at.
            listeners.loopback.extend(listen(&mut services, address, &word).await.ok());
        }
        for address in interfaces().into_iter().take(MAX_INTERFACES) {
            listeners.interfaces.extend(listen(&mut services, address, &word).await.ok());
        }
        listeners.datagrams = echo(&mut services).await.ok();
        let path = std::env::temp_dir().join(format!("sandbar-verify-{}", random_text(TOKEN_LENGTH)?));
        listen_unix(&mut services, UnixListener::bind(&path)?, &word);
        listeners.path = Some(path);
        let name = format!("sandbar-verify-{}", random_text(TOKEN_LENGTH)?).into_bytes();
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
        let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        listen_unix(&mut services, UnixListener::from_std(listener)?, &word);
        listeners.name = Some(name);
        Ok(Self { listeners, _services: services })
    }

    /// Where they are.
    pub(crate) fn listeners(&self) -> HostListeners {
        self.listeners.clone()
    }
}

impl Drop for HostPost {
    fn drop(&mut self) {
        let path: Option<&PathBuf> = self.listeners.path.as_ref();
        // One that is gone already is as good.
        path.map(std::fs::remove_file);
    }
}

async fn listen(services: &mut JoinSet<()>, address: IpAddr, word: &Arc<[u8]>) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0)).await?;
    let place = listener.local_addr()?;
    let word = Arc::clone(word);
    services.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&word)).await;
        }
    });
    Ok(place)
}

/// Sends back what comes to any address of the host, to all of its network, and to the group.
async fn echo(services: &mut JoinSet<()>) -> io::Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    let port = socket.local_addr()?.port();
    // A host without a route for groups is in none, and none of its targets is there.
    let _ = socket.join_multicast_v4(GROUP, Ipv4Addr::UNSPECIFIED);
    services.spawn(async move {
        let mut buffer = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..count], from).await;
        }
    });
    Ok(port)
}

fn listen_unix(services: &mut JoinSet<()>, listener: UnixListener, word: &Arc<[u8]>) {
    let word = Arc::clone(word);
    services.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&word)).await;
        }
    });
}

/// The addresses of this host's interfaces, without loopback and link-local ones.
fn interfaces() -> Vec<IpAddr> {
    let v4 = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default();
    let v6 = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let mut found: Vec<IpAddr> = local_v4(&v4).into_iter().map(IpAddr::V4).collect();
    found.extend(global_v6(&v6).into_iter().map(IpAddr::V6));
    found
}

/// The local addresses in a listing of `/proc/net/fib_trie`: a line with the address, then one with `host LOCAL`.
fn local_v4(text: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.take()
            && !found.contains(&address)
            && !Ipv4Addr::is_loopback(&address)
            && !address.is_link_local()
        {
            found.push(address);
        }
    }
    found
}

/// The addresses of global scope (`00`) in a listing of `/proc/net/if_inet6`.
fn global_v6(text: &str) -> Vec<Ipv6Addr> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u128::from_str_radix(words.next()?, 16).ok()?;
            (words.nth(2)? == "00").then(|| Ipv6Addr::from(address))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.77.0.0\n        /24 link UNICAST
Local:\n     |-- 10.77.0.2\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 169.254.3.4\n        /32 host LOCAL
     |-- 10.77.0.255\n        /32 link BROADCAST\n     |-- 10.77.0.2\n        /32 host LOCAL\n";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo
fe800000000000000000000000000001 02 40 20 80     eth0
20010db8000000000000000000000005 02 40 00 80     eth0\n";

    #[test]
    fn addresses_of_interfaces_are_read_and_loopback_is_none() {
        assert_eq!(local_v4(TRIE), [Ipv4Addr::new(10, 77, 0, 2)]);
        assert_eq!(global_v6(INET6), ["2001:db8::5".parse::<Ipv6Addr>().unwrap()]);
        assert!(local_v4("nonsense").is_empty());
    }
}
