//! The kit against the reference backend.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_contract::{Fault, Faulty, Feature, Harness, cases, run};
use sandbar_core::{MemoryProvider, Result, SandboxProvider};

mod common;

use common::fault_of;

struct Memory;

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(MemoryProvider::new()))
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        (feature != Feature::RootUser).then(|| format!("{feature} can't be emulated"))
    }

    async fn faulty(&self) -> Option<Faulty> {
        let provider = MemoryProvider::new();
        let failing = provider.clone();
        let arm =
            Arc::new(move |fault: Fault| fault_of(fault).map(|fault| failing.fail_next(fault)).is_some());
        Some(Faulty { provider: Arc::new(provider), arm })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_backend_keeps_the_contract() {
    let report = run(&Memory).await;
    println!("{report}");
    assert!(report.is_success(), "{:?}", report.failed());
}

/// One thread for all: a program that never gives way, or a lock that is held while something waits, shows here.
#[tokio::test(flavor = "current_thread")]
async fn reference_backend_keeps_the_contract_on_one_thread() {
    let report = run(&Memory).await;
    assert!(report.is_success(), "{:?}", report.failed());
}

#[test]
fn there_are_enough_cases_and_their_names_differ() {
    /// How many the contract's sentences make at least.
    const ASKED_FOR: usize = 150;
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(all >= ASKED_FOR, "{all} cases");
}
