use std::collections::BTreeSet;
use std::error::Error as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use sandbar_core::{EgressPolicy, EgressRules, Otherwise, Target};
use sandbar_engine::network::{RouteError, add_route, remove_route};

/// A network that leads to the gateway.
type Route = (Ipv4Addr, u8);

/// Which addresses a program inside can connect to at all; every other is unreachable at once. They follow the policy.
#[derive(Debug)]
pub(super) struct Routes {
    socket: OwnedFd,
    present: BTreeSet<Route>,
}

impl Routes {
    /// Where an earlier shim of this policy left off; nothing is there for a policy that allows no address.
    pub(super) fn new(socket: OwnedFd, present: &EgressPolicy) -> Self {
        Self { socket, present: of(present) }
    }

    /// Opens what `policy` needs. Before the gateway gets it: a route alone opens nothing.
    pub(super) fn open(&mut self, policy: &EgressPolicy) -> io::Result<()> {
        for route in of(policy) {
            // One that is there already is fine, also where this did not know of it.
            add_route(&self.socket, route.0, route.1).map_err(as_io)?;
            self.present.insert(route);
        }
        Ok(())
    }

    /// Closes what `policy` does not need. After the gateway got it, and as far as that goes: the gateway refuses what comes all the same.
    pub(super) fn close(&mut self, policy: &EgressPolicy) -> io::Result<()> {
        let needed = of(policy);
        let over: Vec<Route> = self.present.difference(&needed).copied().collect();
        for route in over {
            remove_route(&self.socket, route.0, route.1).map_err(as_io)?;
            self.present.remove(&route);
        }
        Ok(())
    }
}

/// Of the kind that the kernel's answer is.
fn as_io(error: RouteError) -> io::Error {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    io::Error::new(cause.map_or(io::ErrorKind::Other, io::Error::kind), error)
}

/// The routes of a policy.
fn of(policy: &EgressPolicy) -> BTreeSet<Route> {
    match policy {
        EgressPolicy::AllowAll | EgressPolicy::Rules(EgressRules { otherwise: Otherwise::Allow, .. }) => {
            BTreeSet::from([(Ipv4Addr::UNSPECIFIED, 0)])
        }
        EgressPolicy::Rules(rules) => rules.allow.iter().filter_map(|rule| route(&rule.to)).collect(),
        _ => BTreeSet::new(),
    }
}

fn route(target: &Target) -> Option<Route> {
    let Target::Cidr(cidr) = target else { return None };
    match cidr.network() {
        IpAddr::V4(network) => Some((network, cidr.prefix_len())),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_a_policy_speaks_of_have_a_route() {
        assert!(of(&EgressPolicy::DenyAll).is_empty());
        assert_eq!(of(&EgressPolicy::AllowAll).len(), 1);
        let rules =
            EgressPolicy::allow(["a.test", "192.0.2.0/24:1-9", "192.0.2.0/24:any", "10.1.2.3"]).unwrap();
        let wanted = [(Ipv4Addr::new(10, 1, 2, 3), 32), (Ipv4Addr::new(192, 0, 2, 0), 24)];
        assert_eq!(of(&rules), BTreeSet::from(wanted));
    }
}
