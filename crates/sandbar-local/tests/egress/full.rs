//! A full look under the policy that the scorecard is about.

use sandbar_core::{EgressCheck, EgressPolicy, EgressVerdict, Extent, VerifyOptions};
use sandbar_local::LocalProvider;
use sandbar_rig::Rig;

/// Names that the suite asks for although nobody allows them: they have to be there to be refused.
const NAMES: &[&str] = &[
    "example.com",
    "cloudflare-dns.com",
    "dns.google",
    "dns.quad9.net",
    "metadata.google.internal",
    "metadata",
    "instance-data.ec2.internal",
];

/// Makes the outside as the suite expects it, and answers a name that can be allowed.
pub(crate) fn outside(rig: &Rig) -> String {
    for name in NAMES {
        rig.zone(name).a([93, 184, 215, 14]).publish();
    }
    rig.host("allowed").0
}

/// Looks.
pub(crate) async fn look(provider: &LocalProvider, allowed: &str) -> EgressVerdict {
    let policy = EgressPolicy::allow([&*format!("{allowed}:80,443")]).expect("a rule");
    let options = VerifyOptions { policy: Some(policy), extent: Extent::Full };
    provider.verify(options).await.expect("a verdict")
}
