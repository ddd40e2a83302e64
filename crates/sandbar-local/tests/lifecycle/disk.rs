//! What the data folder takes on disk, and what of it goes.

use sandbar_core::{Command, CreateOptions, ProviderExt, SandboxProvider, VolumeMount, VolumeName};
use sandbar_local::{DiskUsage, LocalProvider, PruneKind, PruneMode, PruneOptions, PruneReport};

use crate::support::{Bed, create, eventually, kill, shim_pid};

async fn usage(provider: &LocalProvider) -> DiskUsage {
    provider.disk_usage().await.expect("a look")
}

async fn prune(provider: &LocalProvider, mode: PruneMode) -> PruneReport {
    let report = provider.prune(PruneOptions::new().with_mode(mode)).await.expect("a look");
    assert!(report.problems.is_empty(), "{report:?}");
    report
}

fn names(report: &PruneReport, kind: PruneKind) -> Vec<&str> {
    report.items.iter().filter(|item| item.kind == kind).map(|item| item.name.as_str()).collect()
}

#[tokio::test]
async fn each_part_is_measured_and_nothing_is_made() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let none = usage(&provider).await;
    assert_eq!((none.sandboxes.count, none.sandboxes.bytes, none.volumes.bytes), (Some(0), Some(0), Some(0)));
    assert!(!bed.home().exists(), "a look made the data folder");
    let volume = VolumeName::new("v").expect("a name");
    provider.require_volumes().expect("volumes").create(&volume).await.expect("made");
    let mount = VolumeMount { volume, path: sandbar_core::GuestPath::new("/mnt/v").expect("a path") };
    let sandbox = provider.create(CreateOptions::new().with_volume(mount)).await.expect("a sandbox");
    let before = usage(&provider).await;
    let script = "head -c 3000000 /dev/urandom > own && chmod 0 own && mkdir -m 0 shut && head -c 6000000 /dev/urandom > /mnt/v/f && sync own /mnt/v/f";
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success() || output.stderr_lossy().contains("sync"), "{output:?}");
    let after = usage(&provider).await;
    let grew = |before: Option<u64>, after: Option<u64>| {
        after.expect("measured").saturating_sub(before.expect("measured"))
    };
    let own = grew(before.sandboxes.bytes, after.sandboxes.bytes);
    assert!((3_000_000..4_000_000).contains(&own), "{before:?} {after:?}");
    let stored = grew(before.volumes.bytes, after.volumes.bytes);
    assert!((6_000_000..7_000_000).contains(&stored), "{before:?} {after:?}");
    assert_eq!((after.sandboxes.count, after.volumes.count), (Some(1), Some(1)));
    assert!(after.logs.count.is_some_and(|count| count > 1) && after.logs.bytes.is_some(), "{after:?}");
    assert!(after.templates.bytes.is_some_and(|bytes| bytes > 0), "{after:?}");
    sandbox.destroy().await.expect("destroyed");
    let last = usage(&provider).await;
    assert_eq!((last.sandboxes.count, last.trash.count), (Some(0), Some(0)), "{last:?}");
    assert!(last.volumes.bytes.is_some_and(|bytes| bytes >= 6_000_000), "{last:?}");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn what_nobody_needs_goes_and_only_when_asked() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    assert!(prune(&provider, PruneMode::Remove).await.items.is_empty() && !bed.home().exists());
    let lives = create(&provider).await;
    provider
        .require_volumes()
        .expect("volumes")
        .create(&VolumeName::new("kept").expect("a name"))
        .await
        .expect("made");
    // One whose time is over, with nobody to see it.
    let options = CreateOptions::new().with_deadline(std::time::Duration::from_secs(600));
    let expired = provider.create(options).await.expect("a sandbox");
    let id = expired.id().clone();
    let shim = shim_pid(&bed, &id).expect("a shim");
    kill(shim);
    eventually("its shim is gone", async || crate::support::has_ended(shim)).await;
    let record = bed.folder(&id).join("record.json");
    let mut stored = bed.stored(&id);
    stored["deadline"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&record, serde_json::to_vec(&stored).expect("JSON")).expect("written");
    // Wreckage of every kind.
    for folder in [
        "sandboxes/wreck",
        "trash/old",
        "volumes/.new-x",
        "volumes/.old-y",
        "layers/.new-z",
        "templates/host/.new-w",
        "pool/9",
    ] {
        std::fs::create_dir_all(bed.home().join(folder).join("in")).expect("a folder");
        std::fs::write(bed.home().join(folder).join("in/file"), [1; 8192]).expect("a file");
    }
    std::fs::create_dir_all(bed.home().join("layers/cache")).expect("a folder");
    std::fs::write(bed.home().join("layers/cache/key.json"), "{}").expect("a file");

    let planned = prune(&provider, PruneMode::DryRun).await;
    let expect = |report: &PruneReport| {
        assert_eq!(names(report, PruneKind::Expired), [id.as_str()], "{report:?}");
        assert_eq!(names(report, PruneKind::Leftover), ["wreck"]);
        assert_eq!(names(report, PruneKind::Trash), ["old"]);
        let mut unfinished = names(report, PruneKind::Unfinished);
        unfinished.sort_unstable();
        assert_eq!(
            unfinished,
            ["layers/.new-z", "templates/host/.new-w", "volumes/.new-x", "volumes/.old-y"]
        );
        assert_eq!(names(report, PruneKind::CachedStep), ["key"]);
        assert!(names(report, PruneKind::Pool).contains(&"9"));
        assert!(report.bytes() >= 7 * 8192, "{report:?}");
    };
    expect(&planned);
    assert!(planned.items.iter().all(|item| !item.removed && item.problem.is_none()), "{planned:?}");
    assert!(bed.folder(&id).exists() && bed.home().join("layers/.new-z/in/file").exists());

    let done = prune(&provider, PruneMode::Remove).await;
    expect(&done);
    assert!(done.items.iter().all(|item| item.removed && item.problem.is_none()), "{done:?}");
    assert!(prune(&provider, PruneMode::DryRun).await.items.is_empty());
    assert!(provider.describe(&id).await.expect("an answer").is_none());
    // What has time left, and what is meant to stay, stays.
    let output = lives.commands().run(&Command::new("true")).await.expect("it ran");
    assert!(output.status.is_success());
    assert!(bed.home().join("volumes/kept/data").exists());
    lives.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}
