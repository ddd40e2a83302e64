//! A change that can't be written down: the old policy or the new one, in the gateway as on disk.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use futures::TryStreamExt;
use sandbar_core::{
    DecisionKind, DecisionOptions, EgressPolicy, Network, Sandbox, SandboxExt, SandboxProvider,
};

use crate::support::{Scene, Tries, end_shim, scene};

/// Whether the policy that is described is the one in force, before and after another shim takes over; answers it.
async fn in_force(scene: &Scene, sandbox: &dyn Sandbox, names: &[&str]) -> EgressPolicy {
    let described = scene.provider_sees(sandbox).await.expect("a policy");
    assert_eq!(sandbox.require_network().expect("a network").policy().await.expect("a policy"), described);
    for adopted in [false, true] {
        if adopted {
            end_shim(scene, sandbox.id()).await;
        }
        for name in names {
            let is_allowed = EgressPolicy::allow([*name]).expect("a rule") == described;
            let got = sandbox.get(name, 80).await;
            assert_eq!(got == "200", is_allowed, "{name} under {described:?}, adopted: {adopted}: {got}");
        }
    }
    described
}

/// Changes of the policy that the log tells of.
async fn changes(network: &dyn Network) -> usize {
    let decisions = network.decisions(DecisionOptions::default()).await.expect("decisions");
    let all: Vec<_> = decisions.try_collect().await.expect("all");
    all.iter().filter(|decision| decision.kind == DecisionKind::Policy).count()
}

#[test]
fn what_can_not_be_written_is_not_in_force() {
    scene("disk::what_can_not_be_written_is_not_in_force", async |scene| {
        let ((a, _), (b, _)) = (scene.rig.host("a"), scene.rig.host("b"));
        let only = |name: &str| EgressPolicy::allow([name]).expect("a rule");
        // From nothing, where the record points to no file yet; and from rules, where it is not written.
        for (begin, file) in [
            (EgressPolicy::DenyAll, "egress.json.new"),
            (EgressPolicy::DenyAll, "record.json.new"),
            (only(&a), "egress.json.new"),
        ] {
            let sandbox = scene.create(begin.clone()).await;
            let network = sandbox.require_network().expect("a network");
            // A folder in the place where the file is to be written first.
            let obstacle = scene.folder(sandbox.id()).join(file);
            std::fs::create_dir(&obstacle).expect("an obstacle");
            network.set_policy(only(&b)).await.expect_err("it can't be kept");
            std::fs::remove_dir(&obstacle).expect("removed");
            assert_eq!(in_force(scene, &*sandbox, &[&a, &b]).await, begin, "{file}");
            assert_eq!(changes(network).await, 0, "{file}: what was taken back is told");
            network.set_policy(only(&b)).await.expect("there is room again");
            assert_eq!(changes(network).await, 1, "{file}");
            assert_eq!(in_force(scene, &*sandbox, &[&a, &b]).await, only(&b));
            sandbox.destroy().await.expect("destroyed");
        }
    });
}

#[test]
fn on_a_full_disk_the_old_policy_stays() {
    scene("disk::on_a_full_disk_the_old_policy_stays", async |scene| {
        let home = scene.home();
        let Some(disk) = SmallDisk::mount(&home) else {
            println!("skipped: this user can't mount a disk");
            return;
        };
        let ((a, _), (b, _)) = (scene.rig.host("a"), scene.rig.host("b"));
        let old = EgressPolicy::allow([a.as_str()]).expect("a rule");
        let sandbox = scene.create(old.clone()).await;
        let network = sandbox.require_network().expect("a network");
        let many: Vec<String> = (0..4000).map(|n| format!("n{n}.test")).chain([b.clone()]).collect();
        let many = EgressPolicy::allow(many.iter().map(String::as_str)).expect("rules");
        let fill = disk.fill();
        let error = network.set_policy(many.clone()).await.expect_err("no room");
        assert_eq!(error.kind(), sandbar_core::ErrorKind::LimitExceeded, "{error:?}");
        assert!(error.hint().is_some(), "{error:?}");
        assert_eq!(in_force(scene, &*sandbox, &[&a, &b]).await, old);
        std::fs::remove_file(fill).expect("removed");
        network.set_policy(many.clone()).await.expect("there is room again");
        assert_eq!(network.policy().await.expect("a policy"), many);
        assert_eq!(sandbox.get(&b, 80).await, "200");
        scene.provider().destroy(sandbox.id()).await.expect("destroyed");
        drop(sandbox);
    });
}

/// A data folder on a disk of its own. The mount is the rig's, and goes with it.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(place: &'a Path) -> Option<Self> {
        std::fs::DirBuilder::new().mode(0o700).create(place).expect("a folder");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64m,mode=700", "small-disk"]).arg(place);
        let mounted = mount.stderr(std::process::Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(place))
    }

    /// Takes all room but some pages.
    fn fill(&self) -> std::path::PathBuf {
        use std::io::Write;
        let path = self.0.join("fill");
        let mut file = std::fs::File::create(&path).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
        let length = file.metadata().expect("a length").len();
        file.set_len(length - 64 * 1024).expect("some room");
        path
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}
