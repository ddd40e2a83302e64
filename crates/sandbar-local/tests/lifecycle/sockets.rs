//! Where the sockets of a sandbox are.

use sandbar_core::Command;

use crate::support::{Bed, create};

#[tokio::test]
async fn sockets_can_be_found_by_their_folder() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let shown = std::fs::read_to_string("/proc/net/unix").expect("sockets");
    for name in ["shim.sock", "agent.sock", "ctl.sock"] {
        let path = bed.folder(sandbox.id()).join(name);
        assert!(shown.lines().any(|line| line.ends_with(&format!(" {}", path.display()))), "{name}");
    }
    sandbox.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_data_folder_may_lie_deep() {
    let Some(bed) = Bed::new() else { return };
    let home =
        bed.scratch().join("a-folder-with-a-name-that-is-too-long-for-the-address-of-a-socket").join("home");
    let provider = sandbar_local::LocalProvider::open(sandbar_local::LocalConfig::new().with_home(&home));
    let provider = provider.expect("the provider opens");
    let sandbox = create(&provider).await;
    let output = sandbox.commands().run(&Command::new("echo").arg("deep")).await.expect("an output");
    assert_eq!(output.stdout_lossy(), "deep\n");
    sandbox.destroy().await.expect("destroyed");
}
