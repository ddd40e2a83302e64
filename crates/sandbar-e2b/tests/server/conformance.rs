//! The conformance kit: E2B's backend, our server, the local backend.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar::{Result, SandboxProvider};
use sandbar_contract::{Deviations, Fault, Faulty, Feature, Harness, RunOptions, run_with};
use sandbar_e2b::E2bProvider;
use sandbar_http::testing::{Answer, Fault as Broken, FaultProxy, Rule};

use crate::rig::Rig;

struct E2b {
    rig: Rig,
}

#[async_trait]
impl Harness for E2b {
    fn backend(&self) -> &'static str {
        "e2b"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(self.rig.provider()))
    }

    async fn faulty(&self) -> Option<Faulty> {
        // A server of its own: the cases leave there what they made.
        let rig = Rig::new().await;
        let server = rig.address.strip_prefix("http://").and_then(|address| address.parse().ok());
        let proxy = FaultProxy::start(server.expect("an address")).await;
        let config = rig.config_at(&proxy.url());
        let provider = Arc::new(E2bProvider::open(config).expect("the backend opens"));
        let arm = move |fault| {
            let _ = &rig;
            let (method, path) = match fault {
                Fault::Lookup => ("GET", "/sandboxes/*"),
                Fault::Listing => ("GET", "/v2/sandboxes"),
                Fault::Destroy => ("DELETE", "/sandboxes/*"),
                Fault::Volumes => ("GET", "/volumes"),
                Fault::Templates => ("GET", "/snapshots"),
                // A creation that breaks half-way is made good, and the client of guests has faults of its own (`sandbar-guest`).
                _ => return false,
            };
            // Once and for all: else the transport would try again and succeed.
            let body = serde_json::json!({"code": 500, "message": "injected"});
            let answer = Answer::json(500, &body).with_header("should-retry", "false");
            let _ = proxy.inject(Rule::on(method, path).times(1), Broken::Answer(answer));
            true
        };
        Some(Faulty { provider, arm: Arc::new(arm) })
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        match feature {
            Feature::HostMounts => Some("the sandbox is elsewhere".into()),
            Feature::Python if !std::path::Path::new("/usr/bin/python3").exists() => {
                Some("this machine has no python3".into())
            }
            Feature::RootUser if !is_root() => Some("sandboxes of this user have a single user id".into()),
            _ => None,
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept() {
    let harness = E2b { rig: Rig::new().await };
    let deviations = Deviations::parse(include_str!("deviations.txt")).expect("a list");
    let mut options = RunOptions::new().with_deviations(deviations);
    // For work on one part.
    for prefix in std::env::var("SANDBAR_KIT_ONLY").unwrap_or_default().split(',').filter(|p| !p.is_empty()) {
        options = options.with_only(prefix);
    }
    let report = run_with(&harness, &options).await;
    println!("{report}");
    assert!(report.is_success(), "{report}");
    harness.rig.assert_empty().await;
}
