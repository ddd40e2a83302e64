//! The conformance kit against the account of `E2B_API_KEY` (and what else the variables say): `cargo xtask live e2b [PREFIX...]`.
//!
//! It ends what it made, also what an earlier run left, and prints for how long sandboxes ran.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sandbar_contract::{Deviations, Feature, Harness, RunOptions, run_with};
use sandbar_core::{CreateOptions, Labels, ProviderExt, Query, Result, SandboxProvider, State};
use sandbar_e2b::{E2bConfig, E2bProvider};

/// The label of all sandboxes of such runs.
const LABEL: (&str, &str) = ("sandbar-live", "contract");

/// How long a sandbox may live that a run left, in whose cost nobody is interested.
const LIFETIME: Duration = Duration::from_secs(900);

/// Cases at a time: the smallest account has room for twenty sandboxes.
const PARALLELISM: usize = 4;

/// Between two looks at what runs, for the cost.
const LOOK: Duration = Duration::from_secs(5);

struct Live {
    provider: E2bProvider,
}

#[async_trait]
impl Harness for Live {
    fn backend(&self) -> &'static str {
        "e2b-cloud"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(self.provider.clone()))
    }

    fn options(&self) -> CreateOptions {
        CreateOptions::new().with_deadline(LIFETIME).with_labels(labels())
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        (feature == Feature::HostMounts).then(|| "the sandbox is elsewhere".into())
    }

    fn parallelism(&self) -> usize {
        PARALLELISM
    }
}

fn labels() -> Labels {
    Labels::new().with(LABEL.0, LABEL.1).expect("a label")
}

#[tokio::main]
async fn main() -> ExitCode {
    match live().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

async fn live() -> Result<ExitCode> {
    let provider = E2bProvider::open(E2bConfig::from_env()?)?;
    sweep(&provider).await?;
    let deviations = Deviations::parse(include_str!("../tests/server/deviations.txt")).expect("a list");
    let mut options = RunOptions::new().with_deviations(deviations);
    for prefix in std::env::args().skip(1) {
        options = options.with_only(prefix);
    }
    let (cores, memory) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let harness = Live { provider: provider.clone() };
    let report = tokio::select! {
        report = run_with(&harness, &options) => report,
        () = count(&provider, &cores, &memory) => unreachable!("it counts for ever"),
    };
    println!("{report}");
    let swept = sweep(&provider).await?;
    println!(
        "cost: {} core seconds and {} GiB seconds, counted every {} s; {swept} sandboxes were left and are ended",
        cores.load(Ordering::Relaxed) / 1000,
        memory.load(Ordering::Relaxed) >> 30,
        LOOK.as_secs(),
    );
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Adds up what sandboxes that run have: thousandths of a core and bytes, by seconds.
async fn count(provider: &E2bProvider, cores: &AtomicU64, memory: &AtomicU64) {
    loop {
        tokio::time::sleep(LOOK).await;
        let query = Query::new().with_labels(labels()).with_states([State::Running]);
        // What was not seen is not counted; the next look is soon.
        for record in provider.list_all(query).await.unwrap_or_default() {
            let limit = |name: &str| record.limits.get(name).and_then(|limit| limit.value).unwrap_or(0);
            cores.fetch_add(limit("cpu") * LOOK.as_secs(), Ordering::Relaxed);
            memory.fetch_add(limit("memory") * LOOK.as_secs(), Ordering::Relaxed);
        }
    }
}

/// Ends all sandboxes of such runs, and says how many there were.
async fn sweep(provider: &E2bProvider) -> Result<usize> {
    let records = provider.list_all(Query::new().with_labels(labels())).await?;
    for record in &records {
        provider.destroy(&record.id).await?;
    }
    Ok(records.len())
}
