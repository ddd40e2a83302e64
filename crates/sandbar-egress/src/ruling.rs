use std::sync::Arc;

use sandbar_core::{DecisionReason, HeaderInjection, Verdict};

/// What the policy says about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// Allowed or denied.
    pub verdict: Verdict,
    /// Why.
    pub reason: DecisionReason,
    /// The rule that decides, as it is written.
    pub rule: Option<Arc<str>>,
    /// Headers for each request, of the rule that allows it. With any, TLS is read.
    pub inject: Option<Arc<[HeaderInjection]>>,
}

impl Ruling {
    /// Allowed, and no rule injects anything.
    pub fn allowed(reason: DecisionReason, rule: Option<Arc<str>>) -> Self {
        Self { verdict: Verdict::Allowed, reason, rule, inject: None }
    }

    /// Denied.
    pub fn denied(reason: DecisionReason, rule: Option<Arc<str>>) -> Self {
        Self { verdict: Verdict::Denied, reason, rule, inject: None }
    }

    /// Whether it is allowed.
    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allowed
    }
}
