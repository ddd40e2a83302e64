use std::path::Path;

use sandbar::{
    Cidr, DenyRule, EgressPolicy, EgressRule, EgressRules, Error, HeaderInjection, NamePattern, Otherwise,
    PortSet, Protocol, Target,
};
use serde_json::Value;

use crate::args::PolicyArgs;
use crate::env;
use crate::failure::{Failure, Result};
use crate::value::{AllowRange, AllowRule, DenyRange, Inject, InjectArg, ValueSource};

use super::input_file::read_bounded;

/// Largest policy file in bytes: twice what the most rules there may be take at 200 bytes each, which is a long name with its keys.
const MAX_POLICY_FILE: u64 = 8 << 20;
/// Largest file with the value of a header in bytes, with its line end; the contract takes less.
const MAX_VALUE_FILE: u64 = 16 << 10;
/// The port of HTTPS.
const HTTPS: u16 = 443;

/// What was typed of a policy; `None` where nothing was, so that the backend's default counts.
pub(super) fn resolve(args: PolicyArgs) -> Result<Option<EgressPolicy>> {
    let PolicyArgs { allow, allow_cidr, deny_cidr, allow_all, deny_all, egress_policy, inject } = args;
    if deny_all {
        return Ok(Some(EgressPolicy::DenyAll));
    }
    let adds = !(allow.is_empty() && allow_cidr.is_empty() && deny_cidr.is_empty() && inject.is_empty());
    let base = match egress_policy {
        Some(file) => Some(read_policy(&file)?),
        None => allow_all.then_some(EgressPolicy::AllowAll),
    };
    if !adds {
        return base.map(checked).transpose();
    }
    let mut rules = into_rules(base.unwrap_or_default())?;
    let typed = allow.into_iter().map(|AllowRule(rule)| rule);
    let typed: Vec<_> = typed.chain(allow_cidr.into_iter().map(|AllowRange(rule)| rule)).collect();
    let denied: Vec<_> = deny_cidr.into_iter().map(|DenyRange(rule)| rule).collect();
    rules.allow.extend(typed);
    for inject in inject {
        add_header(&mut rules.allow, &inject)?;
    }
    check_effect(&denied, &rules)?;
    rules.deny.extend(denied);
    checked(EgressPolicy::Rules(rules)).map(Some)
}

fn checked(policy: EgressPolicy) -> Result<EgressPolicy> {
    policy.check("parse egress policy").map_err(Failure::usage)?;
    if let EgressPolicy::Rules(rules) = &policy {
        for rule in &rules.allow {
            for header in &rule.inject {
                check_header(rule, header)?;
            }
        }
    }
    Ok(policy)
}

/// Refuses a header without its value, and one that would go out in clear.
fn check_header(rule: &EgressRule, header: &HeaderInjection) -> Result<()> {
    let (to, name) = (&rule.to, header.header().escape_debug());
    if header.reveal().is_none() {
        let error = usage(format!("rule `{rule}` injects `{name}`, and its value is not known"));
        let hint = format!("values don't stand in a policy file: give `--inject {to}={name}:SOURCE`");
        return Err(with_hint(error, hint));
    }
    if rule.ports.ranges().any(|range| range != (HTTPS..=HTTPS)) {
        let error = usage(format!("rule `{rule}` would put `{name}` into plain HTTP, too"));
        return Err(with_hint(
            error,
            format!("give it the port {HTTPS} alone, and others a rule of their own"),
        ));
    }
    Ok(())
}

fn into_rules(policy: EgressPolicy) -> Result<EgressRules> {
    match policy {
        EgressPolicy::DenyAll => Ok(EgressRules::default()),
        EgressPolicy::AllowAll => Ok(EgressRules { otherwise: Otherwise::Allow, ..EgressRules::default() }),
        EgressPolicy::Rules(rules) => Ok(rules),
        other => Err(usage(format!("a policy of kind `{}` takes no more rules", other.kind()))),
    }
}

/// Refuses a typed rule that would deny nothing, or not all that it names: whoever typed it believes otherwise.
fn check_effect(denied: &[DenyRule], rules: &EgressRules) -> Result<()> {
    let Some(first) = denied.first() else { return Ok(()) };
    if rules.otherwise == Otherwise::Deny {
        let error =
            usage(format!("`--deny-cidr {first}` denies nothing: what no rule allows is denied already"));
        return Err(with_hint(error, "leave it out, or give `--allow-all` if all else shall be allowed"));
    }
    for deny in denied {
        let Target::Cidr(range) = &deny.to else { continue };
        let wins = |allow: &&EgressRule| match &allow.to {
            Target::Cidr(allowed) => overrides(allowed, &allow.ports, range, &deny.ports),
            Target::Name(_) => false,
        };
        if let Some(allow) = rules.allow.iter().find(wins) {
            let error = usage(format!(
                "`--deny-cidr {deny}` does not hold: `{allow}` goes first, as every rule that allows"
            ));
            return Err(with_hint(error, "allow less, so that the two don't name the same"));
        }
    }
    Ok(())
}

/// Whether an allowed range takes a denied one's addresses back, as a whole and not as an exception in it.
fn overrides(allowed: &Cidr, allowed_ports: &PortSet, denied: &Cidr, denied_ports: &PortSet) -> bool {
    let shared = allowed_ports
        .ranges()
        .any(|a| denied_ports.ranges().any(|d| a.start().max(d.start()) <= a.end().min(d.end())));
    let is_exception = allowed == denied && allowed_ports.count() < denied_ports.count();
    shared && allowed.covers(denied) && !is_exception
}

/// Adds a header to the rule for HTTPS to its host, which is made if there is none. It goes first, before wider rules for the same names.
fn add_header(allow: &mut Vec<EgressRule>, arg: &InjectArg) -> Result<()> {
    let Inject { host, header, source } =
        arg.read().map_err(|why| usage_of("parse --inject", why.to_string()))?;
    let value = value(&host, &source)?;
    let injection = HeaderInjection::new(&header, value).map_err(Failure::usage)?;
    let target = Target::Name(host.clone());
    let names = |rule: &EgressRule| rule.to == target && rule.protocol == Protocol::Tcp;
    // A policy that was read names headers without their values.
    let same = |known: &&mut HeaderInjection| known.header().eq_ignore_ascii_case(injection.header());
    if let Some(known) =
        allow.iter_mut().filter(|rule| names(rule)).flat_map(|rule| &mut rule.inject).find(same)
    {
        if known.reveal().is_some() {
            let message = format!("header `{}` is given twice for `{host}`", injection.header());
            return Err(usage_of("parse --inject", message));
        }
        *known = injection;
        return Ok(());
    }
    let https = PortSet::one(HTTPS).map_err(Failure::usage)?;
    if let Some(rule) = allow.iter_mut().find(|rule| names(rule) && rule.ports == https) {
        rule.inject.push(injection);
        return Ok(());
    }
    // No secret goes over plain HTTP because the rule also allows that.
    for rule in allow.iter_mut().filter(|rule| names(rule) && rule.inject.is_empty()) {
        if let Ok(rest) = without(&rule.ports, HTTPS) {
            rule.ports = rest;
        }
    }
    allow.insert(0, EgressRule::new(target).with_ports(https).with_header(injection));
    Ok(())
}

/// The other ports; an error if there are none.
fn without(ports: &PortSet, port: u16) -> Result<PortSet, Error> {
    PortSet::of(ports.ranges().flat_map(|range| {
        if !range.contains(&port) {
            return vec![range];
        }
        let (first, last) = range.into_inner();
        let (below, above) = (first..=port.saturating_sub(1), port.saturating_add(1)..=last);
        [below, above]
            .into_iter()
            .filter(|part| part.start() <= part.end() && !part.contains(&port))
            .collect()
    }))
}

/// The secret, from where it is. No error shows it.
fn value(host: &NamePattern, source: &ValueSource) -> Result<String> {
    let operation = "read injected header";
    let refused = |from: String, why: &str| usage_of(operation, format!("for `{host}`: {from} {why}"));
    let (from, text) = match source {
        ValueSource::Env(name) => {
            let from = format!("variable `{name}`");
            let Some(value) = env::callers(name) else {
                return Err(refused(from, "is not set in this environment"));
            };
            (from, value.into_string().ok())
        }
        ValueSource::File(path) => {
            let mut content = read_bounded(operation, path, MAX_VALUE_FILE)?;
            let ending = [&b"\r\n"[..], b"\n"].into_iter().find(|ending| content.ends_with(ending));
            content.truncate(content.len() - ending.map_or(0, <[u8]>::len));
            (format!("`{}`", path.display()), String::from_utf8(content).ok())
        }
    };
    match text {
        Some(text) if text.is_empty() => Err(refused(from, "is empty")),
        Some(text) => Ok(text),
        None => Err(refused(from, "is not UTF-8")),
    }
}

fn read_policy(file: &Path) -> Result<EgressPolicy> {
    let operation = "read egress policy";
    let complain = |why: String| usage_of(operation, format!("`{}`: {why}", file.display()));
    let content = read_bounded(operation, file, MAX_POLICY_FILE)?;
    let read: EgressPolicy = serde_json::from_slice(&content).map_err(|error| complain(error.to_string()))?;
    let value: Value = serde_json::from_slice(&content).map_err(|error| complain(error.to_string()))?;
    let known = serde_json::to_value(&read).map_err(|error| complain(error.to_string()))?;
    match unknown_key(&value, &known, "") {
        // A misspelt rule is no rule, and what remains may allow more than was meant.
        Some(key) => Err(complain(format!("`{}` is not known", key.escape_debug()))),
        None => Ok(read),
    }
}

/// The path of a key that was given and not read.
fn unknown_key(given: &Value, known: &Value, path: &str) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(key, value)| {
            let path = format!("{path}/{key}");
            match known.get(key) {
                Some(known) => unknown_key(value, known, &path),
                // Written only where there is something in it.
                None if key == "inject" && value.as_array().is_some_and(Vec::is_empty) => None,
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(index, (given, known))| unknown_key(given, known, &format!("{path}/{index}"))),
        _ => None,
    }
}

fn usage(message: String) -> Failure {
    usage_of("parse egress policy", message)
}

fn usage_of(operation: &'static str, message: String) -> Failure {
    Failure::usage(Error::invalid(operation, message))
}

fn with_hint(failure: Failure, hint: impl Into<String>) -> Failure {
    Failure { error: failure.error.map(|error| error.with_hint(hint)), ..failure }
}

#[cfg(test)]
mod tests;
