use std::collections::BTreeSet;
use std::error::Error as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use sandbar_core::{EgressPolicy, EgressRules, Otherwise, Target};
use sandbar_engine::network::{RouteError, add_route, remove_route};

/// A network that leads to the gateway.
type Route = (Ipv4Addr, u8);

/// How often a route is asked for: the kernel's answer can be taken away inside, where a copy of the socket is.
const TRIES: usize = 8;

/// Which addresses a program inside can connect to at all; every other is unreachable at once. They follow the policy.
#[derive(Debug)]
pub(super) struct Routes {
    socket: OwnedFd,
    /// Those that are there.
    known: BTreeSet<Route>,
    /// Those that may be there, too.
    present: BTreeSet<Route>,
}

impl Routes {
    /// Where an earlier shim of this policy left off; nothing is there for a policy that allows no address.
    pub(super) fn new(socket: OwnedFd, present: &EgressPolicy) -> Self {
        Self { socket, known: BTreeSet::new(), present: of(present) }
    }

    /// Opens what `policy` needs, as far as that goes. Before the gateway gets it: a route alone opens nothing.
    pub(super) fn open(&mut self, policy: &EgressPolicy) -> io::Result<()> {
        for route in of(policy) {
            if self.known.contains(&route) {
                continue;
            }
            // Also one of which it is not known whether it is there is closed afterwards.
            self.present.insert(route);
            // One that is there already is fine, also where this did not know of it.
            let mut tried = add_route(&self.socket, route.0, route.1).map_err(as_io);
            for _ in 1..TRIES {
                if !tried.as_ref().is_err_and(|cause| cause.kind() != io::ErrorKind::PermissionDenied) {
                    break;
                }
                tried = add_route(&self.socket, route.0, route.1).map_err(as_io);
            }
            tried?;
            self.known.insert(route);
        }
        Ok(())
    }

    /// A policy without the rules whose addresses have no route, and those rules. Of one that allows all by default, none is left out: it only
    /// allows less than it says.
    pub(super) fn without(&self, policy: &EgressPolicy) -> (EgressPolicy, Vec<String>) {
        let mut rest = policy.clone();
        let mut left_out = Vec::new();
        if let EgressPolicy::Rules(rules) = &mut rest
            && rules.otherwise == Otherwise::Deny
        {
            rules.allow.retain(|rule| {
                let is_there = route(&rule.to).is_none_or(|route| self.known.contains(&route));
                if !is_there {
                    left_out.push(rule.to_string());
                }
                is_there
            });
        }
        (rest, left_out)
    }

    /// Closes what `policy` does not need. After the gateway got it, and as far as that goes: the gateway refuses what comes all the same.
    pub(super) fn close(&mut self, policy: &EgressPolicy) -> io::Result<()> {
        let needed = of(policy);
        let over: Vec<Route> = self.present.difference(&needed).copied().collect();
        for route in over {
            // From now on it may be there or not.
            self.known.remove(&route);
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

    #[test]
    fn what_has_no_route_is_left_out_and_nothing_else() {
        let socket = std::fs::File::open("/dev/null").unwrap();
        let mut routes = Routes::new(socket.into(), &EgressPolicy::AllowAll);
        let policy = EgressPolicy::allow(["a.test", "11.0.2.1:80", "11.0.3.0/24"]).unwrap();
        routes.open(&policy).unwrap_err();
        let (rest, left_out) = routes.without(&policy);
        assert_eq!(rest, EgressPolicy::allow(["a.test"]).unwrap());
        assert_eq!(left_out, ["11.0.2.1/32:80", "11.0.3.0/24:80,443"]);
        assert_eq!(routes.without(&EgressPolicy::AllowAll), (EgressPolicy::AllowAll, Vec::new()));
    }
}
