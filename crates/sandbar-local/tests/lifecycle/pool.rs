//! Layers that a sandbox left as they were made serve the next one; whatever a sandbox did to them, nothing of it reaches another.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sandbar_core::{
    Command, CreateOptions, GuestPath, HostMount, MountAccess, RunOptions, Sandbox, SandboxProvider as _,
    UserName,
};

use crate::support::{Bed, create, has_root_inside};

fn pooled(bed: &Bed) -> Vec<PathBuf> {
    let entries = fs::read_dir(bed.home().join("pool")).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("a folder").ino()
}

/// Sandboxes with subordinate ids make their layers themselves.
fn keeps() -> bool {
    is_root() || !has_root_inside()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn by(user: &str) -> RunOptions {
    RunOptions::default().with_user(UserName::new(user).expect("a name"))
}

async fn run(sandbox: &dyn Sandbox, script: &str, user: &str) -> String {
    let output = sandbox.commands().run_opts(&Command::shell(script), by(user)).await.expect("an output");
    assert!(output.status.is_success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout_lossy().into_owned()
}

#[tokio::test]
async fn what_was_not_written_to_serves_the_next() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let first = create(&provider).await;
    let upper = inode(&bed.folder(first.id()).join("fs/upper"));
    run(&*first, "true", "user").await;
    assert!(first.destroy().await.expect("destroyed"));
    bed.assert_empty("after the first").await;
    if !keeps() {
        assert!(pooled(&bed).is_empty());
        return;
    }
    let kept = pooled(&bed);
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(fs::metadata(&kept[0]).expect("it").permissions().mode() & 0o7777, 0o700);
    // Nothing of the first one is in them, nor in their name.
    let text = format!("{kept:?}");
    assert!(!text.contains(first.id().as_str()), "{text}");

    let second = create(&provider).await;
    let reused = bed.folder(second.id()).join("fs/upper");
    assert_eq!(inode(&reused), upper, "the same folder");
    assert!(pooled(&bed).is_empty(), "taken");
    // It is one like any other: it can be written to, and then it goes.
    assert_eq!(
        run(&*second, "ls -A /tmp /home/user; echo x > /tmp/x; cat /tmp/x", "user")
            .await
            .matches("x\n")
            .count(),
        1
    );
    assert!(second.destroy().await.expect("destroyed"));
    assert!(pooled(&bed).is_empty(), "written to");
    bed.assert_empty("after the second").await;
}

/// Everything that a program inside can do to a folder of its own: each is undone as far as a look at the names goes.
const TRACES: &[(&str, &str)] = &[
    ("a file", "echo x > /tmp/file"),
    ("a folder that was removed", "mkdir /tmp/x && rmdir /tmp/x"),
    ("what hides a file below", "rm -f ~/.profile ~/.bashrc; mv ~ /tmp/moved 2>/dev/null || touch ~/x"),
    ("an attribute", "touch ~/x && { setfattr -n user.x -v y ~ 2>/dev/null || true; }"),
];

#[tokio::test]
async fn what_was_written_to_serves_nobody() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    for (what, script) in TRACES {
        let sandbox = create(&provider).await;
        run(&*sandbox, script, "user").await;
        assert!(sandbox.destroy().await.expect("destroyed"), "{what}");
        assert_eq!(pooled(&bed), Vec::<PathBuf>::new(), "{what}");
        bed.assert_empty(what).await;
    }
}

const ROOM: &str = "the room of names that are gone";

/// The same for what only the sandbox' root can do, to the root folder itself, which is the layer.
const TRACES_OF_ROOT: &[(&str, &str)] = &[
    ("a mode", "chmod 1777 /"),
    ("an owner", "chown 1000:1000 /"),
    ("a group", "chgrp 1000 /usr"),
    (ROOM, "cd /; for n in $(seq 300); do : > a-name-that-takes-room-$n; done; rm -f /a-name-*"),
    ("a hard link that stays", "echo x > /x; ln /x /usr/y; ln /x /y; rm /x"),
    ("an attribute", "python3 -c 'import os; os.setxattr(\"/\", \"user.smuggled\", b\"x\")'"),
    (
        "an attribute under a name of the overlay's",
        "python3 -c 'import os; os.setxattr(\"/\", \"user.overlay.opaque\", b\"y\")'",
    ),
    (
        "an access list for what comes",
        "python3 -c 'import os, struct; os.setxattr(\"/\", \"system.posix_acl_default\", struct.pack(\"<I\", 2) + b\"\".join(struct.pack(\"<HHI\", t, 7, i) for t, i in [(1, 2**32-1), (2, 1000), (4, 2**32-1), (16, 2**32-1), (32, 2**32-1)]))'",
    ),
    (
        "a flag",
        "python3 -c 'import os, fcntl, struct; f = os.open(\"/\", os.O_RDONLY); fcntl.ioctl(f, 0x40086602, struct.pack(\"l\", struct.unpack(\"l\", fcntl.ioctl(f, 0x80086601, bytes(8)))[0] | 0xc0))'",
    ),
];

#[tokio::test]
async fn no_trace_of_a_sandbox_root_reaches_the_next() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return;
    }
    let provider = bed.provider();
    for (what, script) in TRACES_OF_ROOT {
        let sandbox = create(&provider).await;
        let command = Command::shell(*script);
        let output = sandbox.commands().run_opts(&command, by("root")).await.expect("an output");
        // What the kernel refuses leaves no trace, nor do names where the file system gives their room back; the rest must be seen.
        let is_short = fs::metadata(bed.folder(sandbox.id()).join("fs/upper")).expect("it").len() <= 4096;
        assert!(sandbox.destroy().await.expect("destroyed"), "{what}");
        let expected = usize::from(!output.status.is_success() || (*what == ROOM && is_short));
        assert_eq!(pooled(&bed).len(), expected, "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let next = create(&provider).await;
        let look = "stat -c '%a %u %g' / /usr; ls -A / /usr | grep -c smuggled; python3 -c 'import os; print(os.listxattr(\"/\"))'; true";
        let seen = run(&*next, look, "user").await;
        assert_eq!(seen, "755 0 0\n755 0 0\n0\n[]\n", "{what}");
        assert!(next.destroy().await.expect("destroyed"), "{what}");
        for kept in pooled(&bed) {
            fs::remove_dir_all(kept).expect("removed");
        }
    }
}

#[tokio::test]
async fn the_times_of_the_next_are_its_own() {
    let Some(bed) = Bed::new() else { return };
    if !is_root() {
        return;
    }
    let provider = bed.provider();
    let first = create(&provider).await;
    run(&*first, "touch -d 2001-02-03 /", "root").await;
    assert!(first.destroy().await.expect("destroyed"));
    let next = create(&provider).await;
    let year = run(&*next, "stat -c %y / | cut -c1-4", "user").await;
    assert_ne!(year.trim(), "2001");
    next.destroy().await.expect("destroyed");
}

#[tokio::test]
async fn a_sandbox_with_a_mount_keeps_none() {
    let Some(bed) = Bed::new() else { return };
    let shared = tempfile::tempdir().expect("a folder");
    let mount = HostMount {
        source: shared.path().to_owned(),
        target: GuestPath::new("/mnt/shared").expect("a path"),
        access: MountAccess::ReadOnly,
    };
    let options = CreateOptions::new().with_host_mount(mount);
    let sandbox = bed.provider().create(options).await.expect("a sandbox");
    assert!(sandbox.destroy().await.expect("destroyed"));
    assert!(pooled(&bed).is_empty());
}

#[tokio::test]
async fn what_somebody_put_among_the_kept_is_not_used() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    create(&provider).await.destroy().await.expect("destroyed");
    let Some(kept) = pooled(&bed).pop() else {
        assert!(!keeps());
        return;
    };
    fs::write(kept.join("upper/planted"), "x").expect("a file");
    let sandbox = create(&provider).await;
    assert_eq!(run(&*sandbox, "ls / | grep -c planted; true", "user").await, "0\n");
    assert!(!kept.exists(), "removed");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the planted").await;
}
