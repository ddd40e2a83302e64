use sandbar::{
    DecisionReason, Destination, Explanation, Protocol, SandboxExt, SandboxId, SandboxProvider, Verdict,
};
use serde::Serialize;

use crate::commands::resolve::require;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, escape, print_bytes, print_json, verdict_word};
use crate::value::EgressPeer;

/// Version of the JSON form.
const FORM: u32 = 1;

/// Explains. An absent sandbox is a failure here: code 1 says that something is denied.
pub(super) async fn why(
    provider: &dyn SandboxProvider,
    id: &str,
    peer: EgressPeer,
    protocol: Protocol,
    printer: Printer,
) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "explain egress").await?;
    let explaining = sandbox.require_network()?.explain(peer.host.clone(), peer.port, protocol);
    let explanation = printer.progress("asking the gateway", explaining).await?;
    if printer.json() {
        print_json(&form(sandbox.id(), &peer, protocol, &explanation))?;
    } else {
        print_bytes(text(&peer, protocol, &explanation).as_bytes())?;
    }
    Ok(status(explanation.verdict))
}

fn status(verdict: Verdict) -> ExitStatus {
    if verdict == Verdict::Allowed { ExitStatus::Done } else { ExitStatus::Denied }
}

fn text(peer: &EgressPeer, protocol: Protocol, explanation: &Explanation) -> String {
    let Explanation { verdict, reason, rule, sentence } = explanation;
    let EgressPeer { host, port } = peer;
    let host = match host {
        Destination::Address(address) if address.is_ipv6() => format!("[{address}]"),
        host => host.to_string(),
    };
    let retry = match (verdict, reason.may_retry()) {
        (Verdict::Allowed, _) => "not needed",
        (_, true) => "may help",
        (_, false) => "does not help while the policy stays as it is",
    };
    let rule = rule.as_deref().unwrap_or("none");
    let (sentence, rule) = (escape(sentence), escape(rule));
    format!(
        "{} {host}:{port} by {protocol}\nwhy   {sentence}\nrule  {rule}\nretry {retry}\n",
        verdict_word(*verdict)
    )
}

/// The form of decision 0004.
#[derive(Debug, Serialize)]
struct WhyJson<'a> {
    version: u32,
    id: &'a SandboxId,
    host: String,
    port: u16,
    protocol: Protocol,
    verdict: Verdict,
    reason: DecisionReason,
    sentence: &'a str,
    rule: Option<&'a str>,
    may_retry: bool,
}

fn form<'a>(
    id: &'a SandboxId,
    peer: &EgressPeer,
    protocol: Protocol,
    explanation: &'a Explanation,
) -> WhyJson<'a> {
    let Explanation { verdict, reason, rule, sentence } = explanation;
    WhyJson {
        version: FORM,
        id,
        host: peer.host.to_string(),
        port: peer.port,
        protocol,
        verdict: *verdict,
        reason: *reason,
        sentence,
        rule: rule.as_deref(),
        may_retry: reason.may_retry(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn denied() -> Explanation {
        Explanation {
            verdict: Verdict::Denied,
            reason: DecisionReason::PortNotAllowed,
            rule: Some("example.com:443".into()),
            sentence: "the policy allows this host, but not at this port. A retry will not help.\x1b[2J"
                .into(),
        }
    }

    #[test]
    fn only_what_is_allowed_is_success() {
        let verdicts = [Verdict::Allowed, Verdict::Denied, Verdict::Failed, Verdict::Closed];
        assert_eq!(verdicts.map(|verdict| status(verdict).code()), [0, 1, 1, 1]);
    }

    #[test]
    fn people_get_the_verdict_the_reason_and_whether_a_retry_helps() {
        let peer = "[2001:db8::1]:80".parse().unwrap();
        insta::assert_snapshot!(text(&peer, Protocol::Udp, &denied()), @r"
        denied [2001:db8::1]:80 by udp
        why   the policy allows this host, but not at this port. A retry will not help.\u{1b}[2J
        rule  example.com:443
        retry does not help while the policy stays as it is
        ");
    }

    #[test]
    fn json_has_every_key() {
        let peer = "example.com:80".parse().unwrap();
        let id = SandboxId::new("i1").unwrap();
        let explanation = Explanation { sentence: "no".into(), ..denied() };
        let text = serde_json::to_string(&form(&id, &peer, Protocol::Tcp, &explanation)).unwrap();
        assert!(text.starts_with(r#"{"version":1,"id":"i1","host":"#), "{text}");
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "version": 1, "id": "i1", "host": "example.com", "port": 80, "protocol": "tcp", "verdict": "denied",
                "reason": "port_not_allowed", "sentence": "no", "rule": "example.com:443", "may_retry": false,
            })
        );
    }
}
