//! The egress policy of a sandbox on disk, with the values of the headers that it injects: mode 0600 in a folder of mode 0700.

use std::fmt;
use std::io;

use sandbar_core::{EgressPolicy, EgressRules, HeaderInjection};
use serde::{Deserialize, Serialize};

use super::Folder;

/// The file.
const POLICY: &str = "egress.json";
/// Largest policy that is taken, in bytes: the most rules there may be take some 7 MiB; what is left is for the values of headers.
pub(crate) const MAX_POLICY: usize = 12 << 20;

/// A policy as it is passed on and kept: whole, secrets too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SealedPolicy {
    policy: EgressPolicy,
    /// Values of injected headers, in the order of the rules and of the headers in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

impl SealedPolicy {
    /// Takes a policy together with its secrets; `None` where it has a header whose value is not known.
    pub(crate) fn seal(policy: EgressPolicy) -> Option<Self> {
        let values =
            headers(&policy).map(|header| header.reveal().map(str::to_owned)).collect::<Option<_>>()?;
        Some(Self { policy, values })
    }

    /// The policy with its secrets.
    pub(crate) fn open(&self) -> sandbar_core::Result<EgressPolicy> {
        let mut policy = self.policy.clone();
        let mut values = self.values.iter();
        if let EgressPolicy::Rules(EgressRules { allow, .. }) = &mut policy {
            for header in allow.iter_mut().flat_map(|rule| &mut rule.inject) {
                let value = values.next().ok_or_else(|| {
                    sandbar_core::Error::invalid("read egress policy", "the value of a header is missing")
                })?;
                *header = HeaderInjection::new(header.header(), value.as_str())?;
            }
        }
        Ok(policy)
    }

    /// How many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        let mut counted = Counted(0);
        // Counting does not fail, and what can't be written down is found out by whoever does that.
        let _ = serde_json::to_writer(&mut counted, self);
        counted.0
    }

    /// Whether a rule injects headers, for which TLS is intercepted.
    pub(crate) fn intercepts(&self) -> bool {
        headers(&self.policy).next().is_some()
    }

    /// The policy for everybody's eyes.
    pub(crate) fn public(&self) -> &EgressPolicy {
        &self.policy
    }
}

/// Takes bytes and keeps their number.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn headers(policy: &EgressPolicy) -> impl Iterator<Item = &HeaderInjection> {
    let rules = match policy {
        EgressPolicy::Rules(rules) => rules.allow.as_slice(),
        _ => &[],
    };
    rules.iter().flat_map(|rule| &rule.inject)
}

impl fmt::Debug for SealedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedPolicy").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Folder {
    /// The policy that was kept; `None` means that there is positively none.
    pub(crate) fn policy(&self) -> io::Result<Option<SealedPolicy>> {
        let Some(bytes) = self.read_file(POLICY, MAX_POLICY)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
    }

    /// Keeps a policy in place of the one before: whole, or not at all.
    pub(crate) fn keep_policy(&self, policy: &SealedPolicy) -> io::Result<()> {
        self.replace_file(POLICY, &serde_json::to_vec(policy)?, MAX_POLICY)
    }
}

#[cfg(test)]
mod tests {
    use sandbar_core::{EgressRule, Otherwise};

    use super::*;

    #[test]
    fn a_sealed_policy_opens_with_its_secrets_and_shows_none() {
        let header = HeaderInjection::new("authorization", "s3cret").unwrap();
        let plain: EgressRule = "a.test".parse().unwrap();
        let rule = "b.test:443".parse::<EgressRule>().unwrap().with_header(header);
        let policy = EgressPolicy::rules(vec![plain.clone()], Vec::new(), Otherwise::Deny);
        assert!(!SealedPolicy::seal(policy).unwrap().intercepts());
        let policy = EgressPolicy::rules(vec![plain, rule], Vec::new(), Otherwise::Deny);
        let sealed = SealedPolicy::seal(policy.clone()).unwrap();
        assert!(!format!("{sealed:?}").contains("s3cret") && sealed.intercepts());
        let text = serde_json::to_string(&sealed).unwrap();
        let back: SealedPolicy = serde_json::from_str(&text).unwrap();
        assert_eq!(back.open().unwrap(), policy);
        assert_eq!(sealed.size(), text.len());
        // What was read back for everybody's eyes can't be sealed: its value would be lost.
        assert_eq!(
            SealedPolicy::seal(serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap()),
            None
        );
    }
}
