use std::collections::BTreeMap;

use sandbar_core::{
    Cidr, DenyRule, EgressPolicy, EgressRule, EgressRules, Error, HeaderInjection, NamePattern, Otherwise,
    PortSet, Protocol, Result, Target,
};
use sandbar_wire::e2b::{ALL_TRAFFIC, NetworkConfig, NetworkRule, NetworkTransform, NetworkUpdate};

use crate::config::BACKEND;

/// Most domains whose requests get headers: E2B's limit.
const MAX_DOMAINS: usize = 10;
/// Most headers for one domain: E2B's limit.
const MAX_HEADERS: usize = 20;
/// Ranges that E2B denies to every sandbox, whatever is allowed.
const ALWAYS_DENIED: &[&str] =
    &["10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"];

/// A policy in E2B's words, the same at creation and later.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Words {
    allow_out: Vec<String>,
    deny_out: Vec<String>,
    rules: BTreeMap<String, Vec<NetworkRule>>,
    /// Said outright where all is allowed: without a word, servers have defaults of their own.
    internet: Option<bool>,
}

impl Words {
    /// For a creation.
    pub(crate) fn config(&self) -> Option<NetworkConfig> {
        let config = NetworkConfig {
            allow_out: some(&self.allow_out),
            deny_out: some(&self.deny_out),
            rules: (!self.rules.is_empty()).then(|| self.rules.clone()),
            ..NetworkConfig::default()
        };
        (config != NetworkConfig::default()).then_some(config)
    }

    /// Whether it reaches anything, where that is all there is to say.
    pub(crate) fn internet(&self) -> Option<bool> {
        self.internet
    }

    /// For a sandbox that runs.
    pub(crate) fn update(&self) -> NetworkUpdate {
        NetworkUpdate {
            allow_out: some(&self.allow_out),
            deny_out: some(&self.deny_out),
            rules: (!self.rules.is_empty()).then(|| self.rules.clone()),
            egress_proxy: None,
            allow_internet_access: self.internet,
        }
    }
}

fn some(list: &[String]) -> Option<Vec<String>> {
    (!list.is_empty()).then(|| list.to_vec())
}

/// The words for a policy, or which rule there are none for.
pub(crate) fn words(operation: &'static str, policy: &EgressPolicy) -> Result<Words> {
    policy.check(operation).map_err(|error| error.with_backend(BACKEND))?;
    match policy {
        EgressPolicy::DenyAll => Ok(Words { deny_out: vec![ALL_TRAFFIC.to_owned()], ..Words::default() }),
        EgressPolicy::AllowAll => Ok(Words { internet: Some(true), ..Words::default() }),
        EgressPolicy::Rules(rules) => of_rules(operation, rules),
        _ => Err(Error::unsupported(operation, "this kind of egress policy", "E2B has no words for it")
            .with_backend(BACKEND)),
    }
}

fn of_rules(operation: &'static str, rules: &EgressRules) -> Result<Words> {
    let EgressRules { allow, deny, otherwise } = rules;
    let mut words = Words::default();
    match otherwise {
        // An allow-list alone blocks nothing.
        Otherwise::Deny => words.deny_out.push(ALL_TRAFFIC.to_owned()),
        Otherwise::Allow => words.internet = Some(true),
    }
    for rule in deny {
        let refuse = |why: &str| Err(unsayable(operation, &rule.to.to_string(), why));
        match &rule.to {
            Target::Cidr(cidr) if rule.ports == PortSet::any() => match v4(cidr) {
                Some(text) if *otherwise == Otherwise::Allow => words.deny_out.push(text),
                // Denied anyway.
                Some(_) => {}
                None => return refuse("sandboxes of E2B have addresses of version 4 only"),
            },
            Target::Cidr(_) => return refuse("E2B denies an address at every port, and not at some"),
            Target::Name(_) => return refuse("E2B denies by address, and not by name"),
        }
    }
    for rule in allow {
        let refuse = |why: &str| Err(unsayable(operation, &rule.to_string(), why));
        if rule.protocol != Protocol::Tcp {
            return refuse("E2B has no rules for UDP alone");
        }
        match &rule.to {
            Target::Name(_) if rule.ports != PortSet::default() => {
                return refuse("E2B allows a name at ports 80 and 443, and at no others");
            }
            Target::Name(_) if *otherwise == Otherwise::Allow => {
                return refuse("E2B takes names only where all else is denied");
            }
            Target::Name(pattern) => {
                words.allow_out.push(pattern.to_string());
                inject(operation, rule, pattern, &mut words.rules)?;
            }
            Target::Cidr(cidr) if rule.ports == PortSet::any() => match range(cidr) {
                Ok(text) => words.allow_out.push(text),
                Err(why) => return refuse(why),
            },
            Target::Cidr(_) => {
                return refuse("E2B allows an address at every port; write it with `:any` if that will do");
            }
        }
    }
    Ok(words)
}

fn unsayable(operation: &'static str, rule: &str, why: &str) -> Error {
    Error::unsupported(operation, format!("egress rule `{rule}`"), why).with_backend(BACKEND)
}

/// A range that may be allowed.
fn range(cidr: &Cidr) -> Result<String, &'static str> {
    let text = v4(cidr).ok_or("sandboxes of E2B have addresses of version 4 only")?;
    let is_denied = |range: &&&str| Cidr::parse(range).is_ok_and(|range| range.covers(cidr));
    match ALWAYS_DENIED.iter().find(is_denied) {
        Some(_) => Err("E2B denies private addresses to every sandbox, whatever is allowed"),
        None => Ok(text),
    }
}

fn v4(cidr: &Cidr) -> Option<String> {
    cidr.network().is_ipv4().then(|| cidr.to_string())
}

fn inject(
    operation: &'static str,
    rule: &EgressRule,
    pattern: &NamePattern,
    rules: &mut BTreeMap<String, Vec<NetworkRule>>,
) -> Result<()> {
    if rule.inject.is_empty() {
        return Ok(());
    }
    let mut headers = BTreeMap::new();
    for header in &rule.inject {
        let Some(value) = header.reveal() else {
            let message = format!("rule `{rule}` injects header `{}` without its value", header.header());
            return Err(Error::invalid(operation, message)
                .with_backend(BACKEND)
                .with_hint("a policy that was read back does not hold values: give the header again"));
        };
        headers.insert(header.header().to_owned(), value.to_owned());
    }
    let transform = Some(NetworkTransform { headers: Some(headers) });
    let is_new = rules.insert(pattern.to_string(), vec![NetworkRule { transform }]).is_none();
    if !is_new || rules.len() > MAX_DOMAINS || rule.inject.len() > MAX_HEADERS {
        let why =
            format!("E2B takes headers for {MAX_DOMAINS} names, {MAX_HEADERS} for each, each name once");
        return Err(unsayable(operation, &rule.to_string(), &why));
    }
    Ok(())
}

/// The policy that these words mean; `None` where they have a meaning that policies have no words for, or nothing was said to a server that
/// is not E2B's, whose default nobody knows.
pub(crate) fn read(
    config: Option<&NetworkConfig>,
    internet: Option<bool>,
    is_e2b_itself: bool,
) -> Option<EgressPolicy> {
    let empty = NetworkConfig::default();
    let config = config.unwrap_or(&empty);
    if config.egress_proxy.is_some() {
        return None;
    }
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let (allow_out, deny_out) = (list(&config.allow_out), list(&config.deny_out));
    let denies_all = internet == Some(false) || deny_out.iter().any(|text| text == ALL_TRAFFIC);
    let says_nothing = allow_out.is_empty() && deny_out.is_empty() && internet.is_none();
    if says_nothing && !is_e2b_itself {
        return None;
    }
    let rules = config.rules.clone().unwrap_or_default();
    let allow = allow_out.iter().map(|text| allowed(text, &rules)).collect::<Option<Vec<_>>>()?;
    let deny = if denies_all {
        Vec::new()
    } else {
        deny_out
            .iter()
            .map(|text| Some(DenyRule::new(Target::Cidr(Cidr::parse(text).ok()?))))
            .collect::<Option<Vec<_>>>()?
    };
    Some(match (allow.is_empty(), deny.is_empty(), denies_all) {
        (true, _, true) => EgressPolicy::DenyAll,
        (true, true, false) => EgressPolicy::AllowAll,
        (_, _, true) => EgressPolicy::rules(allow, deny, Otherwise::Deny),
        (_, _, false) => EgressPolicy::rules(allow, deny, Otherwise::Allow),
    })
}

fn allowed(text: &str, rules: &BTreeMap<String, Vec<NetworkRule>>) -> Option<EgressRule> {
    if let Ok(cidr) = Cidr::parse(text) {
        return Some(EgressRule::new(Target::Cidr(cidr)).with_ports(PortSet::any()));
    }
    let rule = EgressRule::new(Target::Name(NamePattern::parse(text).ok()?));
    let transforms = rules.get(text).into_iter().flatten().filter_map(|rule| rule.transform.as_ref());
    let names = transforms.filter_map(|transform| transform.headers.as_ref()).flat_map(BTreeMap::keys);
    Some(names.filter_map(|name| valueless(name)).fold(rule, EgressRule::with_header))
}

/// A header whose value is not known.
fn valueless(name: &str) -> Option<HeaderInjection> {
    serde_json::from_value(serde_json::json!({ "header": name.to_ascii_lowercase() })).ok()
}

#[cfg(test)]
mod tests;
