use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures::{FutureExt, StreamExt, stream};
use sandbar_core::{ProviderExt, Query};

use crate::bed::Suite;
use crate::case::{CASE_TIMEOUT, Case};
use crate::check::Verdict;
use crate::deviations::Deviations;
use crate::harness::Harness;
use crate::report::{CaseReport, Outcome, Report};

/// What to run, and what is known to fail.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Known failures.
    pub deviations: Deviations,
    /// Only cases whose name is one of these or starts with one of them; all if empty.
    pub only: Vec<String>,
}

impl RunOptions {
    /// All cases, no known failures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the known failures.
    pub fn with_deviations(mut self, deviations: Deviations) -> Self {
        self.deviations = deviations;
        self
    }

    /// Runs only cases whose name starts with `prefix`, besides others asked for.
    pub fn with_only(mut self, prefix: impl Into<String>) -> Self {
        self.only.push(prefix.into());
        self
    }

    fn wants(&self, case: &Case) -> bool {
        self.only.is_empty() || self.only.iter().any(|prefix| case.name.starts_with(prefix.as_str()))
    }
}

/// The name under which what concerns the run as a whole is reported.
const WHOLE: &str = "kit.leaves_nothing";

/// Runs all cases.
pub async fn run(harness: &dyn Harness) -> Report {
    run_with(harness, &RunOptions::new()).await
}

/// Runs the cases that `options` ask for.
pub async fn run_with(harness: &dyn Harness, options: &RunOptions) -> Report {
    let backend = harness.backend().to_owned();
    let began = Instant::now();
    let provider = match harness.provider().await {
        Ok(provider) => provider,
        Err(error) => {
            let outcome = Outcome::Failed(format!("there is no provider: {error}"));
            return Report {
                backend,
                cases: vec![CaseReport { name: WHOLE, outcome, duration: began.elapsed() }],
            };
        }
    };
    let suite = Suite::new(harness, provider);
    let wanted: Vec<Case> = crate::cases().into_iter().filter(|case| options.wants(case)).collect();
    let mut cases: Vec<(usize, CaseReport)> = stream::iter(wanted.into_iter().enumerate())
        .map(|(number, case)| {
            let suite = &suite;
            async move { (number, run_case(suite, case, options).await) }
        })
        .buffer_unordered(harness.parallelism().max(1))
        .collect()
        .await;
    cases.sort_by_key(|(number, _)| *number);
    let mut cases: Vec<CaseReport> = cases.into_iter().map(|(_, case)| case).collect();
    let ending = Instant::now();
    let outcome = match leaves_nothing(&suite).await {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    };
    cases.push(CaseReport { name: WHOLE, outcome, duration: ending.elapsed() });
    harness.cleanup().await;
    Report { backend, cases }
}

async fn run_case(suite: &Suite<'_>, case: Case, options: &RunOptions) -> CaseReport {
    let began = Instant::now();
    let bed = suite.bed();
    let checked =
        AssertUnwindSafe(tokio::time::timeout(CASE_TIMEOUT, (case.check)(&bed))).catch_unwind().await;
    let found = match checked {
        Ok(Ok(Ok(()))) => Outcome::Passed,
        Ok(Ok(Err(Verdict::Failed(why)))) => Outcome::Failed(why),
        Ok(Ok(Err(Verdict::Skipped(why)))) => Outcome::Skipped(why),
        Ok(Err(_)) => Outcome::Failed(format!("not done within {CASE_TIMEOUT:?}")),
        Err(panic) => Outcome::Failed(format!("panicked: {}", words(&*panic))),
    };
    let cleared = AssertUnwindSafe(tokio::time::timeout(CASE_TIMEOUT, bed.clear())).catch_unwind().await;
    let found = match (found, cleared) {
        (Outcome::Passed, Ok(Ok(Err(error)))) => failed_clearing(&error),
        (Outcome::Passed, Ok(Err(late))) => failed_clearing(&late),
        (Outcome::Passed, Err(panic)) => failed_clearing(&words(&*panic)),
        (found, _) => found,
    };
    let outcome = match (found, options.deviations.reason(suite.harness.backend(), case.name)) {
        (Outcome::Failed(_), Some(reason)) => Outcome::Deviates(reason.to_owned()),
        (Outcome::Passed, Some(reason)) => {
            Outcome::Failed(format!("it passes, but stands among the deviations: {reason}"))
        }
        (found, _) => found,
    };
    CaseReport { name: case.name, outcome, duration: began.elapsed() }
}

fn failed_clearing(why: &dyn fmt::Display) -> Outcome {
    Outcome::Failed(format!("what the case made could not be removed: {why}"))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_owned()
}

/// After the last case, none of the kit's sandboxes is left.
async fn leaves_nothing(suite: &Suite<'_>) -> Result<(), String> {
    suite.end().await.map_err(|error| error.to_string())?;
    let labels = suite.labels().map_err(|error| error.to_string())?;
    let left = suite.provider.list_all(Query::new().with_labels(labels)).await;
    let left = left.map_err(|error| error.to_string())?;
    if left.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = left.iter().map(|record| record.id.as_str()).collect();
    Err(format!("sandboxes are left: {}", ids.join(", ")))
}
