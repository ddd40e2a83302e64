use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use sandbar_core::EgressPolicy;

use super::policy_view::PolicyView;

/// Names that nobody needs and that everybody can resolve: RFC 2606 keeps them, and their owner serves a page there.
const DENIED_NAMES: &[&str] = &["example.com", "example.org", "example.net"];
/// Public resolvers at well-known addresses, which answer on 443 and 53: Cloudflare (1.1.1.1, developers.cloudflare.com/1.1.1.1) and Quad9 (quad9.net).
const FIRST_RAW: &[Ipv4Addr] = &[Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(9, 9, 9, 9)];
/// Others of other owners: Google (developers.google.com/speed/public-dns) and OpenDNS (opendns.com).
const SECOND_RAW: &[Ipv4Addr] = &[Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(208, 67, 222, 222)];

/// What a check knows of where it is made.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// A name that the policy denies.
    pub(crate) denied_name: Option<String>,
    /// A name that a rule allows on 443.
    pub(crate) tls_name: Option<String>,
    /// A name that a rule allows on 80.
    pub(crate) http_name: Option<String>,
    /// Public addresses of one owner that no rule allows.
    pub(crate) first_raw: Vec<Ipv4Addr>,
    /// Those of another.
    pub(crate) second_raw: Vec<Ipv4Addr>,
    /// Every address that rules allow is no target.
    pub(crate) allowed: Vec<IpAddr>,
    /// Where the host listens for the time of the check.
    pub(crate) host: HostListeners,
    /// Where another sandbox's port is published.
    pub(crate) neighbour: Option<Neighbour>,
}

/// Where the host listens for the time of the check; each answers with the token.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostListeners {
    /// On loopback.
    pub(crate) loopback: Vec<SocketAddr>,
    /// On the addresses of its interfaces.
    pub(crate) interfaces: Vec<SocketAddr>,
    /// By UDP, at every address and in a multicast group; what comes is sent back.
    pub(crate) datagrams: Option<u16>,
    /// A stream socket with a path.
    pub(crate) path: Option<PathBuf>,
    /// A stream socket with an abstract name.
    pub(crate) name: Option<Vec<u8>>,
    /// What they say.
    pub(crate) token: String,
}

/// Another sandbox's service.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    /// Where it is published on the host.
    pub(crate) published: SocketAddr,
    /// The port inside.
    pub(crate) port: u16,
    /// What it says.
    pub(crate) token: String,
}

impl Surroundings {
    /// What the policy says of targets, and what was set up for the check.
    pub(crate) fn of(policy: &EgressPolicy, host: HostListeners, neighbour: Option<Neighbour>) -> Self {
        let view = PolicyView::of(policy);
        let open_to = |list: &[Ipv4Addr]| {
            list.iter().copied().filter(|address| !view.allows_address(IpAddr::V4(*address))).collect()
        };
        let allowed = super::form::KNOWN_ADDRESSES
            .iter()
            .copied()
            .filter(|address| view.allows_address(*address))
            .collect();
        Self {
            denied_name: DENIED_NAMES
                .iter()
                .find(|name| !view.allows_name(name))
                .map(|name| (*name).to_owned()),
            tls_name: view.name_at(443),
            http_name: view.name_at(80),
            first_raw: open_to(FIRST_RAW),
            second_raw: open_to(SECOND_RAW),
            allowed,
            host,
            neighbour,
        }
    }

    /// Every raw address, the first owner's first.
    pub(crate) fn raw(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.first_raw.iter().chain(&self.second_raw).copied()
    }

    /// One raw address.
    pub(crate) fn any_raw(&self) -> Option<Ipv4Addr> {
        self.raw().next()
    }

    /// Those of the addresses that no rule allows.
    pub(crate) fn not_allowed(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        addresses.iter().copied().filter(|address| !self.allowed.contains(address)).collect()
    }
}
