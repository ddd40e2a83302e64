use serde::{Deserialize, Serialize};

use super::rule::{DenyRule, EgressRule, Target};
use crate::{Error, Result};

/// Most rules of one policy, of both kinds together.
pub const MAX_RULES: usize = 20_000;

/// What a sandbox may reach. Means the same on every backend; what a backend can't enforce it refuses, naming the rule, before any effect.
///
/// Never reachable under any policy: the host, loopback, link-local and metadata addresses. Private addresses are reachable only by a rule
/// whose range lies wholly within a private block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EgressPolicy {
    /// Nothing.
    #[default]
    DenyAll,
    /// Every public address, by TCP.
    AllowAll,
    /// What the rules say.
    Rules(EgressRules),
}

/// Rules in three steps: what a rule allows is allowed; else what a rule denies is denied; else the default decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressRules {
    /// What may be reached.
    #[serde(default)]
    pub allow: Vec<EgressRule>,
    /// What may not, of what no rule allows.
    #[serde(default)]
    pub deny: Vec<DenyRule>,
    /// What becomes of all that no rule speaks of.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// What becomes of what no rule speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// It is denied.
    #[default]
    Deny,
    /// It is allowed where it is a public address, by TCP.
    Allow,
}

impl EgressPolicy {
    /// A policy of these rules.
    pub fn rules(allow: Vec<EgressRule>, deny: Vec<DenyRule>, otherwise: Otherwise) -> Self {
        Self::Rules(EgressRules { allow, deny, otherwise })
    }

    /// Allows what these rules say, and nothing else. Each is read as [`EgressRule`] is.
    pub fn allow<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let allow = rules.into_iter().map(str::parse).collect::<Result<_>>()?;
        Ok(Self::rules(allow, Vec::new(), Otherwise::Deny))
    }

    /// In one word, for where the rules have no room.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DenyAll => "deny-all",
            Self::AllowAll => "allow-all",
            Self::Rules(_) => "rules",
        }
    }

    /// Refuses what no backend could enforce: too many rules, or headers for what is not read as HTTP.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        let Self::Rules(EgressRules { allow, deny, .. }) = self else { return Ok(()) };
        let count = allow.len() + deny.len();
        if count > MAX_RULES {
            let message = format!("{count} egress rules are more than the {MAX_RULES} there may be");
            return Err(Error::invalid(operation, message)
                .with_hint("put names below one domain into one rule, as in `*.example.com`"));
        }
        for rule in allow.iter().filter(|rule| !rule.inject.is_empty()) {
            let is_web = rule.ports.ranges().all(|range| range == (80..=80) || range == (443..=443));
            let is_tcp = rule.protocol == super::ports::Protocol::Tcp;
            if !matches!(rule.to, Target::Name(_)) || !is_web || !is_tcp {
                let message =
                    format!("rule `{rule}` injects a header: that takes a name, and no port but 80 and 443");
                return Err(Error::invalid(operation, message));
            }
        }
        Ok(())
    }
}
