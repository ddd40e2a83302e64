//! The conformance kit on a plain `envd`.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_contract::{Deviations, Feature, Harness, RunOptions, run_with};
use sandbar_core::{Result, SandboxProvider};
use sandbar_local::{LocalConfig, LocalProvider, Spare};

use crate::provider::OverEnvd;

/// The groups of cases that are about what the agent serves.
const GROUPS: &[&str] = &[
    "commands.",
    "output.",
    "starting.",
    "surroundings.",
    "processes.",
    "process_table.",
    "files.",
    "tree.",
    "archive.",
    "watching.",
];

/// A data folder for a test; `None`, with the reason printed, where no sandbox can be made at all.
pub(crate) fn place() -> Option<(tempfile::TempDir, LocalProvider)> {
    if std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|text| text.trim() == "0") {
        println!("skipped: user namespaces are switched off on this machine");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = LocalConfig::new().with_home(folder.path().join("home")).with_spare(Spare::None);
    Some((folder, LocalProvider::open(config).expect("the provider opens")))
}

struct Plain(LocalProvider);

#[async_trait]
impl Harness for Plain {
    fn backend(&self) -> &'static str {
        "plain"
    }

    async fn provider(&self) -> Result<Arc<dyn SandboxProvider>> {
        Ok(Arc::new(OverEnvd(Arc::new(self.0.clone()))))
    }

    fn lacks(&self, feature: Feature) -> Option<String> {
        match feature {
            Feature::Python if !std::path::Path::new("/usr/bin/python3").exists() => {
                Some("this machine has no python3".into())
            }
            Feature::RootUser
                if std::fs::read_to_string("/etc/subuid").unwrap_or_default().is_empty()
                    && !rustix_root() =>
            {
                Some("sandboxes of this user have a single user id".into())
            }
            _ => None,
        }
    }
}

fn rustix_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

#[tokio::test]
async fn the_contract_is_kept_over_a_plain_envd() {
    let Some((_folder, provider)) = place() else { return };
    let deviations = Deviations::parse(include_str!("deviations.txt")).expect("a list");
    let options = GROUPS
        .iter()
        .fold(RunOptions::new().with_deviations(deviations), |options, group| options.with_only(*group));
    let report = run_with(&Plain(provider), &options).await;
    println!("{report}");
    assert!(report.is_success(), "{report}");
}
