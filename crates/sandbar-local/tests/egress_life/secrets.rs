//! The values of injected headers stand in one file, and nowhere else.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use futures::TryStreamExt;
use sandbar_core::{
    CreateOptions, DecisionOptions, EgressPolicy, EgressRule, ErrorKind, HeaderInjection, Otherwise,
    SandboxExt, SandboxProvider,
};
use sandbar_local::LocalProvider;
use sandbar_observe::AuditConfig;

use crate::support::{Tries, end_shim, scene};

/// A policy that injects `secret`.
fn injecting(name: &str, secret: &str) -> EgressPolicy {
    let header = HeaderInjection::new("authorization", secret).expect("a header");
    let rule = name.parse::<EgressRule>().expect("a rule").with_header(header);
    EgressPolicy::rules(vec![rule], Vec::new(), Otherwise::Deny)
}

#[test]
fn they_are_in_no_other_file_and_in_no_argument() {
    scene("secrets::they_are_in_no_other_file_and_in_no_argument", async |scene| {
        let (name, _) = scene.rig.host("api");
        let (first, second) = ("s3cret-at-creation-7f3a", "s3cret-set-later-91bc");
        let audit = scene.scratch().join("audit.jsonl");
        let config = scene.config().with_audit(AuditConfig::new(audit));
        let provider = LocalProvider::open(config).expect("the provider opens");
        let policy = injecting(&name, first);
        let options = CreateOptions::new().with_egress(policy.clone());
        assert!(!format!("{options:?} {policy:?}").contains("s3cret"));
        let sandbox = provider.create(options).await.expect("headers are injected here");
        assert_eq!(sandbox.get(&name, 443).await, "200");
        seek(scene.scratch(), &sandbox, first).await;
        let network = sandbox.require_network().expect("a network");
        network.set_policy(injecting(&name, second)).await.expect("set");
        assert_eq!(sandbox.get(&name, 443).await, "200");
        seek(scene.scratch(), &sandbox, second).await;
        end_shim(scene, sandbox.id()).await;
        assert_eq!(sandbox.get(&name, 443).await, "200");
        seek(scene.scratch(), &sandbox, second).await;
        let requests = scene.rig.requests(&name);
        let keys: Vec<&str> = requests
            .iter()
            .flat_map(|r| &r.headers)
            .filter(|h| h.0 == "authorization")
            .map(|h| h.1.as_str())
            .collect();
        assert_eq!(keys, [first, second, second]);
        // What is read back can't be set: its values would be lost in silence.
        let read = network.policy().await.expect("a policy");
        let error = network.set_policy(read).await.expect_err("no values");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(!format!("{error:?}{error}").contains("s3cret"));
        sandbox.destroy().await.expect("destroyed");
        assert_eq!(files_with(scene.scratch(), "s3cret"), Vec::<String>::new(), "after its end");
    });
}

/// Looks wherever something of a sandbox can stand.
async fn seek(scratch: &Path, sandbox: &std::sync::Arc<dyn sandbar_core::Sandbox>, secret: &str) {
    let files = files_with(scratch, "s3cret");
    let kept = format!("home/sandboxes/{}/egress.json", sandbox.id());
    assert_eq!(files, [kept.as_str()]);
    let kept = scratch.join(kept);
    assert_eq!(std::fs::metadata(&kept).expect("the policy").permissions().mode() & 0o7777, 0o600);
    assert!(std::fs::read_to_string(kept).expect("the policy").contains(secret));
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let own = entry.file_name() == *std::process::id().to_string();
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            assert!(own || !has(&bytes, "s3cret"), "{}/{file}", entry.path().display());
        }
    }
    let record = sandbox.record().await.expect("a record");
    let record = format!("{record:?}{}", serde_json::to_string(&record).expect("JSON"));
    assert!(record.contains("authorization") && !record.contains("s3cret"), "{record}");
    let network = sandbox.require_network().expect("a network");
    let decisions: Vec<_> = network
        .decisions(DecisionOptions::default())
        .await
        .expect("decisions")
        .try_collect()
        .await
        .expect("all");
    assert!(!format!("{decisions:?}").contains("s3cret"));
    let inside = sandbox
        .python("show([open(f'/proc/{p}/environ', 'rb').read().decode(errors='replace') for p in os.listdir('/proc') if p.isdigit() and os.access(f'/proc/{p}/environ', os.R_OK)])", &[])
        .await;
    assert!(!inside.to_string().contains("s3cret"));
}

fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(next) = pending.pop() {
        // What is another id's can't be read, and this process wrote nothing there.
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(path),
                Ok(kind) if kind.is_file() && has(&std::fs::read(&path).unwrap_or_default(), word) => {
                    found.push(path.strip_prefix(folder).expect("below it").display().to_string());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn has(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}
