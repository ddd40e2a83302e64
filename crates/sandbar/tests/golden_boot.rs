//! The golden boots of `examples/golden-boot`, end to end: packages of the registries that this machine is set to, a template, and apps from it.
#![cfg(feature = "local")]

#[path = "../../../examples/golden-boot/boot.rs"]
mod boot;

use boot::Kind;
use sandbar::local::{LocalConfig, LocalProvider, Spare};
use sandbar::{ProviderExt as _, Query};

/// Whether the packages can be had at all: a machine without a registry is no fault of ours.
fn can_fetch(kind: Kind) -> bool {
    let (program, arguments): (_, &[&str]) = match kind {
        Kind::Vite => ("npm", &["ping"]),
        Kind::FastApi => {
            ("/usr/bin/python3", &["-m", "pip", "download", "-q", "--no-deps", "-d", "/dev/null/none", "pip"])
        }
    };
    let output = std::process::Command::new(program).args(arguments).output();
    match (kind, output) {
        (Kind::Vite, Ok(output)) => output.status.success(),
        // It can't be written there, which is only found out once it was found.
        (Kind::FastApi, Ok(output)) => {
            !String::from_utf8_lossy(&output.stderr).contains("No matching distribution")
        }
        (_, Err(_)) => false,
    }
}

async fn boots(kind: Kind) {
    let scratch = tempfile::tempdir().expect("a folder");
    let config = LocalConfig::new().with_home(scratch.path().join("home")).with_spare(Spare::None);
    let provider = LocalProvider::open(config).expect("the provider opens");
    let packages = match boot::fetch(kind) {
        Ok(packages) => packages,
        Err(error) if !can_fetch(kind) => {
            println!("skipped: packages can't be had on this machine: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut lines = Vec::new();
    let template = boot::build(&provider, kind, packages.path(), |line| lines.push(line)).await;
    let template = template.unwrap_or_else(|error| panic!("{error}: {lines:#?}"));
    let (one, other) =
        tokio::join!(boot::boot(&provider, kind, &template.id), boot::boot(&provider, kind, &template.id));
    for booted in [one.expect("it boots"), other.expect("it boots")] {
        assert_eq!(booted.title(), "golden boot", "{}: {}", booted.url, booted.page);
        booted.sandbox.destroy().await.expect("destroyed");
    }
    // With the app in the template a creation waits until its page is there: the first request has it.
    let app = boot::build_app(&provider, kind, &template.id).await.expect("built");
    let booted = boot::boot_app(&provider, kind, &app.id).await.expect("it boots");
    assert_eq!(booted.title(), "golden boot", "{}: {}", booted.url, booted.page);
    booted.sandbox.destroy().await.expect("destroyed");
    // What is known is not installed again.
    let mut steps = Vec::new();
    boot::build(&provider, kind, packages.path(), |line| steps.push(line)).await.expect("built");
    let runs: Vec<_> =
        steps.iter().filter(|line| line.contains("] RUN ") || line.contains("] COPY ")).collect();
    assert!(runs.len() >= 3 && runs.iter().all(|line| line.ends_with("(known)")), "{steps:?}");
    assert!(provider.list_all(Query::new()).await.expect("a listing").is_empty());
}

#[tokio::test]
async fn an_app_of_vite_and_react_boots_from_its_template() {
    boots(Kind::Vite).await;
}

#[tokio::test]
async fn an_app_of_fastapi_boots_from_its_template() {
    boots(Kind::FastApi).await;
}
