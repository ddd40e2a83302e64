use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// What the host is told to ask. Nothing else of the file counts: names are asked for as they are, without search domains.
pub(super) const RESOLV_CONF: &str = "/etc/resolv.conf";
/// Name servers that are asked, at most; as the C library does.
const SERVERS: usize = 3;
/// Port of DNS.
const PORT: u16 = 53;
/// Bytes of the file that are read.
const MAX_FILE: usize = 64 << 10;

/// The name servers in the file, in order.
pub(super) fn read(path: &Path) -> Result<Vec<SocketAddr>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("read `{}`: {error}", path.display()))?;
    let servers = parse(&String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_FILE)]));
    if servers.is_empty() {
        return Err(format!("`{}` names no name server", path.display()));
    }
    Ok(servers)
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // A zone (`fe80::1%eth0`) is left out with its server: it can't be asked without.
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, PORT))
    });
    servers.take(SERVERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_servers_count() {
        let text = "# nameserver 9.9.9.9\nsearch corp.test\noptions ndots:5\nnameserver 1.1.1.1 extra\n \
                    nameserver\tfd00::53\nnameserver fe80::1%eth0\nnameserver\nnameserver 1.1.1.2\nnameserver 1.1.1.3\n";
        let expected = ["1.1.1.1:53", "[fd00::53]:53", "1.1.1.2:53"].map(|server| server.parse().unwrap());
        assert_eq!(parse(text), expected);
        let error = read(Path::new("/nonexistent/resolv.conf")).unwrap_err();
        assert!(error.contains("resolv.conf"), "{error}");
    }
}
