//! A provider that is told of keeps the contract as well as the one below.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_contract::{Feature, Harness, run};
use sandbar_core::{MemoryProvider, Result, SandboxProvider};
use sandbar_observe::{AuditConfig, AuditLog, Observation, Observed};

struct Told(tempfile::TempDir);

#[async_trait]
impl Harness for Told {
    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        let log = AuditLog::open(AuditConfig::new(self.0.path().join("audit.jsonl")))?;
        Ok(Arc::new(Observed::new(MemoryProvider::new(), Observation::new().with_audit(log))))
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        (feature != Feature::RootUser).then(|| format!("{feature} can't be emulated"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = run(&Told(folder)).await;
    println!("{report}");
    assert!(report.is_success(), "{:?}", report.failed());
}
