//! The conformance kit on this backend.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_contract::{Deviations, Feature, Harness, RunOptions, run_with};
use sandbar_core::{Result, SandboxId, SandboxProvider};
use sandbar_local::{LocalProvider, Spare};

use crate::support::{self, Bed};

struct Local {
    bed: Bed,
    /// One for all cases; else each has its own.
    provider: Option<LocalProvider>,
}

#[async_trait]
impl Harness for Local {
    fn backend(&self) -> &'static str {
        "local"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(self.provider.clone().unwrap_or_else(|| self.bed.provider())))
    }

    async fn stop(&self, sandbox: &SandboxId) -> bool {
        support::kill(support::agent_pid(&self.bed, sandbox));
        true
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        match feature {
            Feature::Python if !std::path::Path::new("/usr/bin/python3").exists() => {
                Some("this machine has no python3".into())
            }
            Feature::RootUser if !support::has_root_inside() => {
                Some("sandboxes of this user have a single user id".into())
            }
            _ => None,
        }
    }
}

#[tokio::test]
async fn the_contract_is_kept() {
    let Some(bed) = Bed::new() else { return };
    check(Local { bed, provider: None }).await;
}

/// With one provider for all cases, so that most sandboxes are those that were prepared in advance.
#[tokio::test]
async fn the_contract_is_kept_by_what_was_prepared() {
    let Some(bed) = Bed::new() else { return };
    let provider = LocalProvider::open(bed.config().with_spare(Spare::Kept)).expect("the provider opens");
    check(Local { bed, provider: Some(provider) }).await;
}

async fn check(mut harness: Local) {
    let deviations = Deviations::parse(include_str!("deviations.txt")).expect("a list");
    let report = run_with(&harness, &RunOptions::new().with_deviations(deviations)).await;
    println!("{report}");
    assert!(report.is_success(), "{report}");
    // With it the spare goes.
    harness.provider = None;
    harness.bed.assert_empty("after the kit").await;
}
