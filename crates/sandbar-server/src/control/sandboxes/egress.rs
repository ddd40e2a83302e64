//! What E2B's words on the network mean as an egress policy: allow before deny before the default.

use std::collections::BTreeMap;

use sandbar_core::{
    Cidr, DenyRule, EgressPolicy, EgressRule, HeaderInjection, NamePattern, Otherwise, PortSet, Target,
};
use sandbar_wire::e2b::{ALL_TRAFFIC, EgressProxy, NetworkConfig, NetworkRule, NetworkUpdate};

use crate::config::DefaultEgress;
use crate::error::{ApiError, ApiResult};

/// Most domains with rules: E2B's limit.
const MAX_RULE_DOMAINS: usize = 10;
/// Most headers of one rule: E2B's limit.
const MAX_RULE_HEADERS: usize = 20;
/// Longest name of a header in a rule, in bytes: E2B's limit.
const MAX_HEADER_NAME: usize = 64;
/// Longest value of a header in a rule, in bytes: E2B's limit.
const MAX_HEADER_VALUE: usize = 2048;
/// Longest domain of a rule, in bytes: E2B's limit.
const MAX_RULE_DOMAIN: usize = 128;

/// What no sandbox reaches, whatever is allowed: E2B's list.
const NEVER: [&str; 6] =
    ["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"];

/// What was said of where a sandbox may go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Egress<'a> {
    pub(super) allow_out: Option<&'a [String]>,
    pub(super) deny_out: Option<&'a [String]>,
    pub(super) rules: Option<&'a BTreeMap<String, Vec<NetworkRule>>>,
    pub(super) proxy: Option<&'a EgressProxy>,
    pub(super) internet: Option<bool>,
}

impl<'a> Egress<'a> {
    pub(super) fn of_config(config: Option<&'a NetworkConfig>, internet: Option<bool>) -> Self {
        let Some(config) = config else { return Self { internet, ..Self::default() } };
        Self {
            allow_out: config.allow_out.as_deref(),
            deny_out: config.deny_out.as_deref(),
            rules: config.rules.as_ref(),
            proxy: config.egress_proxy.as_ref(),
            internet,
        }
    }

    pub(super) fn of_update(update: &'a NetworkUpdate) -> Self {
        Self {
            allow_out: update.allow_out.as_deref(),
            deny_out: update.deny_out.as_deref(),
            rules: update.rules.as_ref(),
            proxy: update.egress_proxy.as_ref(),
            internet: update.allow_internet_access,
        }
    }

    /// The policy, or which word has no meaning here.
    pub(super) fn policy(self, default: DefaultEgress) -> ApiResult<EgressPolicy> {
        if self.proxy.is_some() {
            return Err(ApiError::bad_request(
                "egressProxy is not available here: leave it out, and allow the proxy's host in allowOut instead",
            ));
        }
        let allow = self.allow_out.unwrap_or_default().iter().map(|text| allowed(text));
        let allow = allow.collect::<ApiResult<Vec<_>>>()?;
        let deny = self.deny_out.unwrap_or_default().iter().map(|text| denied(text));
        let deny = deny.collect::<ApiResult<Vec<_>>>()?;
        let all = Cidr::parse(ALL_TRAFFIC)?;
        let denies_all = self.internet == Some(false) || deny.contains(&all);
        let has_names = allow.iter().any(|target| matches!(target, Target::Name(_)));
        if has_names && !denies_all {
            return Err(ApiError::bad_request(
                "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all other traffic.",
            ));
        }
        let otherwise = match (denies_all, self.internet, default) {
            (true, ..) | (false, None, DefaultEgress::None) => Otherwise::Deny,
            (false, ..) => Otherwise::Allow,
        };
        let injecting = injecting(self.rules, &allow, otherwise)?;
        let deny = match otherwise {
            // What is denied anyway needs no rule.
            Otherwise::Deny => Vec::new(),
            Otherwise::Allow if deny.is_empty() => Vec::new(),
            // E2B's sandboxes have version 4 only: a host that is denied by its address there must not be reached by the other version.
            Otherwise::Allow => {
                let denied = deny.into_iter().chain([Cidr::parse("::/0")?]);
                denied.map(|cidr| DenyRule::new(Target::Cidr(cidr))).collect()
            }
        };
        let allow: Vec<_> = allow.into_iter().map(rule).chain(injecting).collect();
        let policy = match (allow.is_empty(), deny.is_empty(), otherwise) {
            (true, _, Otherwise::Deny) => EgressPolicy::DenyAll,
            (true, true, Otherwise::Allow) => EgressPolicy::AllowAll,
            _ => EgressPolicy::rules(allow, deny, otherwise),
        };
        policy.check("create")?;
        Ok(policy)
    }
}

/// Names are told by what HTTP and TLS say at their ports, addresses at every port.
fn rule(target: Target) -> EgressRule {
    match target {
        Target::Name(_) => EgressRule::new(target),
        Target::Cidr(_) => EgressRule::new(target).with_ports(PortSet::any()),
    }
}

fn allowed(text: &str) -> ApiResult<Target> {
    if looks_like_an_address(text) {
        let cidr = range(text, "allowed")?;
        for never in NEVER {
            if Cidr::parse(never)?.covers(&cidr) {
                return Err(ApiError::bad_request(format!(
                    "allowOut \"{text}\" can't be reached: {never} is denied to every sandbox, whatever is allowed"
                )));
            }
        }
        return Ok(Target::Cidr(cidr));
    }
    if text == "*" {
        return Err(ApiError::bad_request(
            "allowOut \"*\" is not available here: list names such as \"*.example.com\", or leave ALL_TRAFFIC out of denyOut",
        ));
    }
    let pattern = NamePattern::parse(text).map_err(|error| {
        ApiError::bad_request(format!("invalid allowed address \"{text}\": {}", error.message()))
    })?;
    Ok(Target::Name(pattern))
}

fn denied(text: &str) -> ApiResult<Cidr> {
    if looks_like_an_address(text) {
        range(text, "denied")
    } else {
        let message = format!("invalid denied CIDR {text}: denyOut takes addresses and ranges, and no names");
        Err(ApiError::bad_request(message))
    }
}

fn looks_like_an_address(text: &str) -> bool {
    let is_numeric = text.bytes().all(|byte| byte.is_ascii_digit() || b"./".contains(&byte));
    text.contains(':') || (is_numeric && !text.is_empty())
}

/// A range, or an address for it alone. Bits beyond the prefix are dropped, as E2B does.
fn range(text: &str, which: &str) -> ApiResult<Cidr> {
    let refused = |why: &str| ApiError::bad_request(format!("invalid {which} CIDR {text}: {why}"));
    if text == "0.0.0.0" || text == "::" {
        return Err(refused("an unspecified address is no destination; write 0.0.0.0/0 for all traffic"));
    }
    if text.contains(':') {
        return Err(refused(
            "sandboxes have addresses of version 4 only, so there is nothing to say of version 6",
        ));
    }
    let cidr = Cidr::parse(text).or_else(|error| match truncated(text) {
        Some(cidr) => Ok(cidr),
        None => Err(error),
    });
    cidr.map_err(|error| refused(error.message()))
}

fn truncated(text: &str) -> Option<Cidr> {
    let (address, bits) = text.split_once('/')?;
    let address: std::net::Ipv4Addr = address.parse().ok()?;
    let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32)?;
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    Cidr::parse(&format!("{}/{bits}", std::net::Ipv4Addr::from_bits(address.to_bits() & mask))).ok()
}

/// Rules that change requests, for what may be reached anyway: a rule itself grants nothing.
fn injecting(
    rules: Option<&BTreeMap<String, Vec<NetworkRule>>>,
    allow: &[Target],
    otherwise: Otherwise,
) -> ApiResult<Vec<EgressRule>> {
    let Some(rules) = rules else { return Ok(Vec::new()) };
    if rules.len() > MAX_RULE_DOMAINS {
        let message = format!("rules has {} domains: expected at most {MAX_RULE_DOMAINS}", rules.len());
        return Err(ApiError::bad_request(message));
    }
    let mut made = Vec::new();
    for (domain, entries) in rules {
        let pattern = domain_pattern(domain)?;
        let headers = headers_of(domain, entries)?;
        if headers.is_empty() {
            continue;
        }
        for pattern in reached(&pattern, allow, otherwise) {
            let rule = EgressRule::new(Target::Name(pattern));
            made.push(headers.iter().cloned().fold(rule, EgressRule::with_header));
        }
    }
    Ok(made)
}

fn domain_pattern(domain: &str) -> ApiResult<NamePattern> {
    if domain.len() > MAX_RULE_DOMAIN {
        let message = format!("a domain in rules is longer than {MAX_RULE_DOMAIN} bytes");
        return Err(ApiError::bad_request(message));
    }
    NamePattern::parse(domain).map_err(|error| {
        ApiError::bad_request(format!("invalid domain \"{domain}\" in rules: {}", error.message()))
    })
}

fn headers_of(domain: &str, entries: &[NetworkRule]) -> ApiResult<Vec<HeaderInjection>> {
    let refused = |why: String| Err(ApiError::bad_request(format!("rules for \"{domain}\": {why}")));
    let transforms: Vec<_> = entries.iter().filter_map(|entry| entry.transform.as_ref()).collect();
    if transforms.len() > 1 {
        return refused(format!("{} transforms: expected one", transforms.len()));
    }
    let headers = transforms.first().and_then(|transform| transform.headers.as_ref());
    let Some(headers) = headers else { return Ok(Vec::new()) };
    if headers.len() > MAX_RULE_HEADERS {
        return refused(format!("{} headers: expected at most {MAX_RULE_HEADERS}", headers.len()));
    }
    let mut injections = Vec::new();
    for (name, value) in headers {
        if name.len() > MAX_HEADER_NAME || value.len() > MAX_HEADER_VALUE {
            return refused(format!(
                "header \"{}\" is too long: expected at most {MAX_HEADER_NAME} bytes of name and {MAX_HEADER_VALUE} of value",
                name.chars().take(MAX_HEADER_NAME).collect::<String>()
            ));
        }
        if value.contains("${e2b.") {
            return refused(format!(
                "header \"{name}\" has a placeholder, and there are no identity tokens or secrets here to put in its place: give the value itself"
            ));
        }
        match HeaderInjection::new(name, value.clone()) {
            Ok(injection) => injections.push(injection),
            Err(error) => return refused(error.message().to_owned()),
        }
    }
    Ok(injections)
}

/// The part of `wanted` that may be reached.
fn reached(wanted: &NamePattern, allow: &[Target], otherwise: Otherwise) -> Vec<NamePattern> {
    if otherwise == Otherwise::Allow {
        return vec![wanted.clone()];
    }
    let common = allow.iter().filter_map(|target| match target {
        Target::Name(pattern) => common(wanted, pattern),
        Target::Cidr(_) => None,
    });
    let mut common: Vec<_> = common.collect();
    common.sort();
    common.dedup();
    common
}

/// The names that both mean: with patterns of these two kinds one of them holds the other, or they have nothing in common.
fn common(a: &NamePattern, b: &NamePattern) -> Option<NamePattern> {
    let holds = |outer: &NamePattern, inner: &NamePattern| match (outer, inner) {
        (_, NamePattern::Exact(name)) => outer.matches(name),
        (NamePattern::Below(suffix), NamePattern::Below(inner)) => inner == suffix || inner.is_below(suffix),
        (NamePattern::Exact(_), NamePattern::Below(_)) => false,
    };
    if holds(a, b) { Some(b.clone()) } else { holds(b, a).then(|| a.clone()) }
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
