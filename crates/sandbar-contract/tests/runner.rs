//! The kit's own behaviour: deviations, reports, a backend that is not there.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_contract::{Deviations, Harness, Outcome, RunOptions, run, run_with};
use sandbar_core::{Error, ErrorKind, MemoryProvider, Result, SandboxProvider};

const CASE: &str = "commands.success_is_code_zero";

struct Memory;

#[async_trait]
impl Harness for Memory {
    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(MemoryProvider::new()))
    }
}

struct Absent;

#[async_trait]
impl Harness for Absent {
    fn backend(&self) -> &'static str {
        "absent"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Err(Error::new(ErrorKind::Unavailable, "connect", "nobody answers"))
    }
}

#[tokio::test]
async fn deviation_that_passes_fails_the_run() {
    let deviations = Deviations::parse(&format!("memory {CASE} it was so once")).unwrap();
    let options = RunOptions::new().with_only(CASE).with_deviations(deviations);
    let report = run_with(&Memory, &options).await;
    assert_eq!(report.failed(), [CASE]);
    assert!(!report.is_success());
}

#[tokio::test]
async fn deviation_of_another_backend_does_not_count() {
    let deviations = Deviations::parse(&format!("# comment\n\nother {CASE} its own affair")).unwrap();
    let options = RunOptions::new().with_only(CASE).with_deviations(deviations);
    assert!(run_with(&Memory, &options).await.is_success());
}

#[tokio::test]
async fn report_has_a_line_a_case_and_a_sum() {
    let report = run_with(&Memory, &RunOptions::new().with_only("archive.").with_only(CASE)).await;
    let text = report.to_string();
    assert!(text.starts_with(&format!("{CASE} ... ok\n")), "{text}");
    assert!(text.contains("archive.export_and_import_round_trip ... skipped (no archive: "), "{text}");
    let skipped = report.count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    assert!(text.ends_with(&format!("2 passed, 0 failed, {skipped} skipped")), "{text}");
}

#[tokio::test]
async fn backend_that_is_not_there_is_a_failure() {
    let report = run(&Absent).await;
    assert!(!report.is_success());
    assert!(report.to_string().contains("nobody answers"), "{report}");
}

#[test]
fn malformed_deviations_are_refused_by_line() {
    for (text, line) in
        [("memory", 1), (&*format!("\nmemory {CASE}"), 2), ("# fine\nmemory no.such_case because", 2)]
    {
        assert_eq!(Deviations::parse(text).unwrap_err().line, line, "{text}");
    }
}
