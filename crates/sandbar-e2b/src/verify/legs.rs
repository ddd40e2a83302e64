//! What is tried.

use sandbar_core::{Cidr, EgressPolicy, EgressRules, Extent, LegClass, NamePattern, Otherwise, Target};

/// Hosts of which one at least is denied by any policy that denies something.
const DENIED_HOSTS: &[&str] = &["example.com", "example.org", "example.net"];
/// Addresses of public resolvers, which answer HTTPS by address: two operators, so that one that is down does not decide.
const DENIED_ADDRESSES: &[&str] = &["1.1.1.1", "9.9.9.9"];
/// What is asked over UDP. Not 8.8.8.8, which E2B allows to every sandbox that may reach names.
const RESOLVER: &str = "1.1.1.1";
/// Where mail is taken by TCP, which no rule of names speaks of.
const MAIL: &str = "smtp.gmail.com";

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) name: String,
    pub(crate) class: LegClass,
    pub(crate) probe: Probe,
}

/// How it is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// A request, by HTTPS; any status is an answer.
    Https(String),
    /// A question to a resolver, by UDP; any reply is an answer.
    Dns(String),
    /// A connection on which the server speaks first.
    Greeting(String, u16),
}

/// What to try under a policy.
pub(crate) fn legs(policy: &EgressPolicy, extent: Extent) -> Vec<Leg> {
    let mut legs: Vec<Leg> = allowed_host(policy)
        .map(|host| leg("allowed host", LegClass::Control, Probe::Https(host)))
        .into_iter()
        .collect();
    let hosts = DENIED_HOSTS.iter().filter(|host| !allows_name(policy, host));
    let addresses = DENIED_ADDRESSES.iter().filter(|address| !allows_address(policy, address));
    let count = match extent {
        Extent::Quick => 1,
        Extent::Full => 2,
    };
    for host in hosts.take(count) {
        legs.push(leg("denied host", LegClass::Blocked, Probe::Https((*host).to_owned())));
    }
    for address in addresses.take(2) {
        legs.push(leg("denied address", LegClass::Blocked, Probe::Https((*address).to_owned())));
    }
    if extent == Extent::Full {
        if !allows_address(policy, RESOLVER) {
            legs.push(leg("udp to a resolver", LegClass::Blocked, Probe::Dns(RESOLVER.to_owned())));
        }
        legs.push(leg("mail port", LegClass::Blocked, Probe::Greeting(MAIL.to_owned(), 25)));
    }
    legs
}

fn leg(what: &str, class: LegClass, probe: Probe) -> Leg {
    let to = match &probe {
        Probe::Https(host) | Probe::Dns(host) => host.clone(),
        Probe::Greeting(host, port) => format!("{host}:{port}"),
    };
    Leg { name: format!("{what} {to}"), class, probe }
}

/// A host that the policy allows by its name.
fn allowed_host(policy: &EgressPolicy) -> Option<String> {
    let EgressPolicy::Rules(EgressRules { allow, .. }) = policy else { return None };
    allow.iter().find_map(|rule| match &rule.to {
        Target::Name(NamePattern::Exact(name)) => Some(name.to_string()),
        _ => None,
    })
}

/// Whether the policy says outright that a host may be reached. One that allows all is asked for what it should deny all the same: that it
/// denies nothing is what is to be found out.
fn allows_name(policy: &EgressPolicy, host: &str) -> bool {
    let EgressPolicy::Rules(EgressRules { allow, .. }) = policy else { return false };
    let Ok(host) = host.parse() else { return false };
    allow.iter().any(|rule| matches!(&rule.to, Target::Name(pattern) if pattern.matches(&host)))
}

fn allows_address(policy: &EgressPolicy, address: &str) -> bool {
    let EgressPolicy::Rules(EgressRules { allow, otherwise, deny: _ }) = policy else { return false };
    let Ok(address) = Cidr::parse(address) else { return false };
    *otherwise == Otherwise::Deny
        && allow.iter().any(|rule| matches!(&rule.to, Target::Cidr(cidr) if cidr.covers(&address)))
}

impl Probe {
    /// The script that tries it: prints `reached`, `refused`, or why it could not try.
    pub(crate) fn script(&self) -> String {
        match self {
            Self::Https(host) => format!(
                "command -v curl >/dev/null || {{ echo 'no curl'; exit; }}; \
                 code=$(curl -ksS -o /dev/null --max-time 8 -w '%{{http_code}}' https://{host}/ 2>/dev/null); \
                 case $code in ''|000*) echo refused;; *) echo reached $code;; esac"
            ),
            Self::Dns(address) => format!(
                "command -v bash >/dev/null || {{ echo 'no bash'; exit; }}; timeout 8 bash -c \
                 'exec 3<>/dev/udp/{address}/53; \
                 printf \"\\x12\\x34\\x01\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x07example\\x03com\\x00\\x00\\x01\\x00\\x01\" >&3; \
                 head -c 1 <&3 | wc -c' 2>/dev/null | grep -q 1 && echo reached || echo refused"
            ),
            Self::Greeting(host, port) => format!(
                "command -v bash >/dev/null || {{ echo 'no bash'; exit; }}; timeout 8 bash -c \
                 'exec 3<>/dev/tcp/{host}/{port}; head -c 1 <&3 | wc -c' 2>/dev/null | grep -q 1 && echo reached || echo refused"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_is_the_control_and_is_not_expected_to_be_denied() {
        let policy = EgressPolicy::allow(["example.com", "*.example.org", "1.1.1.1:any"]).unwrap();
        let names: Vec<_> = legs(&policy, Extent::Quick).into_iter().map(|leg| leg.name).collect();
        assert_eq!(names, ["allowed host example.com", "denied host example.org", "denied address 9.9.9.9"]);
    }

    #[test]
    fn under_every_policy_something_is_expected_to_be_denied() {
        for policy in
            [EgressPolicy::DenyAll, EgressPolicy::AllowAll, EgressPolicy::allow(["a.test"]).unwrap()]
        {
            for extent in [Extent::Quick, Extent::Full] {
                let tried = legs(&policy, extent);
                assert!(tried.iter().filter(|leg| leg.class == LegClass::Blocked).count() >= 3, "{policy:?}");
            }
        }
    }
}
