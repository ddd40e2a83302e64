use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use sandbar_core::{EgressPolicy, Protocol};

use super::policy_view::{AllowedName, PolicyView};

/// Names that everybody can resolve: RFC 2606 keeps the first ones, and their owner serves a page there; then others in other domains, for policies that
/// allow much.
pub(crate) const KNOWN_NAMES: &[&str] =
    &["example.com", "example.org", "example.net", "iana.org", "dns.google", "one.one.one.one"];
/// Public resolvers at well-known addresses, which answer on 443 and 53, each of another owner: Cloudflare (1.1.1.1, developers.cloudflare.com/1.1.1.1), Quad9
/// (quad9.net), Google (developers.google.com/speed/public-dns), `OpenDNS` (opendns.com), Adguard (adguard-dns.io), Cleanbrowsing (cleanbrowsing.org), Control D
/// (controld.com).
const KNOWN_ADDRESSES: &[Ipv4Addr] = &[
    Ipv4Addr::new(1, 1, 1, 1),
    Ipv4Addr::new(9, 9, 9, 9),
    Ipv4Addr::new(8, 8, 8, 8),
    Ipv4Addr::new(208, 67, 222, 222),
    Ipv4Addr::new(94, 140, 14, 14),
    Ipv4Addr::new(185, 228, 168, 9),
    Ipv4Addr::new(76, 76, 2, 11),
];
/// How many of them are tried: one may be away, and another one's owner filter.
const ADDRESSES: usize = 4;

/// What a check knows of where it is made.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The policy.
    policy: EgressPolicy,
    /// A name that the policy denies, and everything below it too.
    pub(crate) denied_name: Option<String>,
    /// A name that has to be reached.
    pub(crate) allowed_name: AllowedName,
    /// A name that a rule allows on 443.
    pub(crate) tls_name: Option<String>,
    /// A name that a rule allows on 80.
    pub(crate) http_name: Option<String>,
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
        Self {
            denied_name: denied_name(view),
            allowed_name: view.allowed_name(),
            tls_name: view.name_at(443),
            http_name: view.name_at(80),
            policy: policy.clone(),
            host,
            neighbour,
        }
    }

    /// Public addresses that no rule allows there. Where rules allow every one that is known, those: to reach them is what makes the policy an open one.
    pub(crate) fn raw_at(&self, port: u16, protocol: Protocol) -> Vec<Ipv4Addr> {
        let is_denied = |address: &Ipv4Addr| self.denies((*address).into(), port, protocol);
        let denied: Vec<_> = KNOWN_ADDRESSES.iter().copied().filter(is_denied).take(ADDRESSES).collect();
        if denied.is_empty() { KNOWN_ADDRESSES[..ADDRESSES].to_vec() } else { denied }
    }

    /// Those on 443 in two parts, of other owners each. The first has one at least.
    pub(crate) fn raw_parts(&self) -> (Vec<Ipv4Addr>, Vec<Ipv4Addr>) {
        let mut first = self.raw_at(443, Protocol::Tcp);
        let second = first.split_off(first.len().div_ceil(2));
        (first, second)
    }

    /// One of them.
    pub(crate) fn any_raw(&self) -> Option<Ipv4Addr> {
        self.raw_at(443, Protocol::Tcp).first().copied()
    }

    /// Whether no rule allows the address there.
    pub(crate) fn denies(&self, address: IpAddr, port: u16, protocol: Protocol) -> bool {
        !PolicyView::of(&self.policy).allows_address(address, port, protocol)
    }

    /// Whether no rule allows the name.
    pub(crate) fn denies_name(&self, name: &str) -> bool {
        !PolicyView::of(&self.policy).allows_name(name)
    }

    /// Whether no rule allows the name at the port by UDP.
    pub(crate) fn denies_datagrams(&self, name: &str, port: u16) -> bool {
        !PolicyView::of(&self.policy).allows_datagrams(name, port)
    }
}

/// A name that everybody can resolve, and that the policy denies with all that is below it.
pub(crate) fn denied_name(view: PolicyView<'_>) -> Option<String> {
    KNOWN_NAMES.iter().find(|name| view.is_silent_about(name)).map(|name| (*name).to_owned())
}

/// Whether rules allow every address that is known, on 443.
pub(crate) fn allows_every_address(view: PolicyView<'_>) -> bool {
    KNOWN_ADDRESSES.iter().all(|address| view.allows_address((*address).into(), 443, Protocol::Tcp))
}
