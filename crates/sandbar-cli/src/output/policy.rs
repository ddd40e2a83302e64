use sandbar::{
    EgressCounters, EgressPolicy, EgressRule, EgressRules, EgressSummary, GatewayState, HeaderInjection,
    Otherwise, SandboxId,
};
use serde::Serialize;

use crate::output::record::key_line;
use crate::output::stats::short_size;

/// What a sandbox may reach and how it is used: the form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct NetworkJson<'a> {
    version: u32,
    id: &'a SandboxId,
    policy: Option<&'a EgressPolicy>,
    gateway: Option<GatewayState>,
    counters: Option<EgressCounters>,
}

/// In a record: every key is there.
#[derive(Debug, Serialize)]
pub(super) struct EgressJson<'a> {
    policy: Option<&'a EgressPolicy>,
    gateway: Option<GatewayState>,
}

impl<'a> NetworkJson<'a> {
    pub(crate) fn new(
        id: &'a SandboxId,
        egress: &'a EgressSummary,
        counters: Option<EgressCounters>,
    ) -> Self {
        let EgressSummary { policy, gateway } = egress;
        Self { version: 1, id, policy: policy.as_ref(), gateway: *gateway, counters }
    }
}

impl<'a> From<&'a EgressSummary> for EgressJson<'a> {
    fn from(egress: &'a EgressSummary) -> Self {
        let EgressSummary { policy, gateway } = egress;
        Self { policy: policy.as_ref(), gateway: *gateway }
    }
}

/// What a sandbox may reach, as keys and values for a person: at most `max` rules, and how many there are.
pub(super) fn egress_lines(egress: &EgressSummary, max: usize) -> Vec<(&'static str, String)> {
    let EgressSummary { policy, gateway } = egress;
    let mut lines = vec![("egress", headline(policy.as_ref(), *gateway))];
    let Some(EgressPolicy::Rules(EgressRules { allow, deny, .. })) = policy else { return lines };
    let allowed = allow.iter().map(|rule| ("allow", allow_text(rule)));
    lines.extend(allowed.chain(deny.iter().map(|rule| ("deny", rule.to_string()))).take(max));
    let count = allow.len() + deny.len();
    if count > max {
        lines.push(("…", format!("{} more rules", count - max)));
    }
    lines
}

/// What `network` shows a person.
pub(crate) fn network_text(egress: &EgressSummary, counters: Option<EgressCounters>) -> String {
    let mut lines = egress_lines(egress, usize::MAX);
    match counters {
        Some(EgressCounters { allowed, denied, failed, questions, open, bytes_out, bytes_in }) => {
            lines.push((
                "decided",
                format!("{allowed} allowed, {denied} denied, {failed} failed; {questions} names asked for"),
            ));
            lines.push(("open", open.to_string()));
            lines.push(("bytes", format!("{} out, {} in", short_size(bytes_out), short_size(bytes_in))));
        }
        None => lines.push(("decided", "unknown".to_owned())),
    }
    lines.iter().map(|(key, value)| key_line(key, value)).collect()
}

fn headline(policy: Option<&EgressPolicy>, gateway: Option<GatewayState>) -> String {
    let policy = match policy {
        None => "unknown".to_owned(),
        Some(EgressPolicy::Rules(EgressRules { allow, deny, otherwise })) => {
            let rest = match otherwise {
                Otherwise::Deny => "all else denied",
                Otherwise::Allow => "all else that is public allowed",
            };
            format!("rules: {} allow, {} deny, {rest}", allow.len(), deny.len())
        }
        Some(policy) => policy.kind().to_owned(),
    };
    match gateway {
        None => policy,
        Some(GatewayState::Serving) => format!("{policy}; gateway serving"),
        Some(GatewayState::Down) => format!("{policy}; gateway down: the sandbox has no network"),
    }
}

fn allow_text(rule: &EgressRule) -> String {
    if rule.inject.is_empty() {
        return rule.to_string();
    }
    let headers: Vec<_> = rule.inject.iter().map(HeaderInjection::header).collect();
    format!("{rule}, intercepted, injects {}", headers.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> EgressSummary {
        let secret: EgressRule = "api.example.com:443".parse().unwrap();
        let secret = secret.with_header(HeaderInjection::new("Authorization", "hunter2").unwrap());
        let allow = vec![secret, "*.example.org".parse().unwrap(), "10.0.0.0/8:53/udp".parse().unwrap()];
        let policy = EgressPolicy::rules(allow, vec!["192.0.2.0/24".parse().unwrap()], Otherwise::Allow);
        EgressSummary { policy: Some(policy), gateway: Some(GatewayState::Serving) }
    }

    #[test]
    fn people_see_the_rules_and_no_secret() {
        let counters = EgressCounters { allowed: 3, denied: 1, bytes_out: 2048, ..EgressCounters::default() };
        insta::assert_snapshot!(network_text(&rules(), Some(counters)), @"
        egress      rules: 3 allow, 1 deny, all else that is public allowed; gateway serving
        allow       api.example.com:443, intercepted, injects authorization
        allow       *.example.org:80,443
        allow       10.0.0.0/8:53/udp
        deny        192.0.2.0/24
        decided     3 allowed, 1 denied, 0 failed; 0 names asked for
        open        0
        bytes       2K out, 0 in
        ");
        let down = EgressSummary { policy: Some(EgressPolicy::DenyAll), gateway: Some(GatewayState::Down) };
        insta::assert_snapshot!(network_text(&down, None), @"
        egress      deny-all; gateway down: the sandbox has no network
        decided     unknown
        ");
    }

    #[test]
    fn many_rules_are_cut_and_counted() {
        let lines = egress_lines(&rules(), 1);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2], ("…", "3 more rules".to_owned()));
    }

    #[test]
    fn json_is_the_form_of_decision_0004_and_reads_as_a_policy() {
        let id = SandboxId::new("i1").unwrap();
        let summary = rules();
        let form = serde_json::to_value(NetworkJson::new(&id, &summary, None)).unwrap();
        assert_eq!(
            form,
            json!({
                "version": 1,
                "id": "i1",
                "policy": {"rules": {
                    "allow": [
                        {"to": {"name": "api.example.com"}, "ports": "443", "protocol": "tcp", "inject": [{"header": "authorization"}]},
                        {"to": {"name": "*.example.org"}, "ports": "80,443", "protocol": "tcp"},
                        {"to": {"cidr": "10.0.0.0/8"}, "ports": "53", "protocol": "udp"},
                    ],
                    "deny": [{"to": {"cidr": "192.0.2.0/24"}, "ports": "any"}],
                    "otherwise": "allow",
                }},
                "gateway": "serving",
                "counters": null,
            })
        );
    }
}
