//! What is hidden from an ordinary look counts all the same.

use futures::future::join_all;
use sandbar_core::{
    Command, CreateOptions, ExitStatus, KillCause, LimitState, Output, Resources, RunOptions, SandboxProvider,
};
use std::time::Duration;

use crate::support::{Bed, has_root_inside};

/// Runs each script in a sandbox of its own, and gives what became of it.
async fn run_each(bed: &Bed, resources: Resources, scripts: &[(&str, String)]) -> Vec<(String, Output)> {
    let provider = bed.provider();
    let runs = scripts.iter().map(|(name, script)| {
        let provider = provider.clone();
        async move {
            let options = CreateOptions::new().with_resources(resources);
            let sandbox = provider.create(options).await.expect("a sandbox");
            let bound = RunOptions::default().with_timeout(Duration::from_secs(60));
            let output =
                sandbox.commands().run_opts(&Command::shell(script), bound).await.expect("an output");
            sandbox.destroy().await.expect("destroyed");
            ((*name).to_owned(), output)
        }
    });
    join_all(runs).await
}

fn assert_all_ended(ended: Vec<(String, Output)>, cause: KillCause) {
    for (name, output) in ended {
        assert_eq!((output.status, output.cause), (ExitStatus::Signal(9), Some(cause)), "{name}: {output:?}");
    }
}

const FILL: &str =
    "for i in 1 2 3; do head -c 30000000 /dev/zero > $D/$i || exit 3; done; sleep 40; echo survived";
const DELETED: &str =
    "exec 3>a 4>b 5>c; rm a b c; for i in 3 4 5; do head -c 30000000 /dev/zero >&$i || exit 3; done";

#[tokio::test]
async fn hidden_files_count() {
    let Some(bed) = Bed::new() else { return };
    let folder = |mode: &str| format!("mkdir d; chmod {mode} d; D=d; {FILL}");
    let scripts = [
        ("deleted and open", format!("{DELETED}; sleep 40; echo survived")),
        // A program that can't be read makes its process one that can't be looked into.
        ("deleted and out of sight", format!("cp /bin/sleep s; chmod 111 s; {DELETED}; exec ./s 40")),
        ("closed to others", folder("700")),
        ("closed to lists", folder("311")),
        ("a folder with entries that can't be looked at", format!("mkdir d; touch d/x; chmod 444 d; D=.; {FILL}")),
        ("one file of many names", "mkdir d; for i in 1 2 3; do head -c 30000000 /dev/zero > $i; for j in $(seq 60); do ln $i d/$i.$j; done; done; rm -r d & sleep 30; echo survived".into()),
        ("moved about", format!("mkdir d; (cd d; for i in 1 2 3; do mkdir -p $i/x; done; while mv 1/x 2/y && mv 2/y 1/x; do :; done) & D=.; {FILL}")),
    ];
    let small = Resources::default().with_disk_bytes(40 << 20);
    assert_all_ended(run_each(&bed, small, &scripts).await, KillCause::Disk);
    bed.assert_empty("after the hidden ones").await;
}

#[tokio::test]
async fn other_ids_files_count() {
    let Some(bed) = Bed::new() else { return };
    if !has_root_inside() {
        println!("skipped: sandboxes of this user have a single id");
        return;
    }
    let provider = bed.provider();
    let small = Resources::default().with_disk_bytes(40 << 20);
    let sandbox = provider.create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let script = format!("mkdir /srv/d; chown 70:70 /srv/d; chmod 700 /srv/d; D=/srv/d; {FILL}");
    let options = RunOptions::default()
        .with_timeout(Duration::from_secs(60))
        .with_user(sandbar_core::UserName::new("root").expect("a name"));
    let output = sandbox.commands().run_opts(&Command::shell(script), options).await.expect("an output");
    assert_eq!((output.status, output.cause), (ExitStatus::Signal(9), Some(KillCause::Disk)), "{output:?}");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after root").await;
}

const PYTHON: &str = r#"exec python3 -c '
import ctypes, mmap, os, sys, time
kind = sys.argv[1]
block = b"x" * (1 << 20)
if kind == "memfd":
    fd = os.memfd_create("held")
    for _ in range(200): os.write(fd, block)
elif kind == "sysv":
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    for _ in range(4):
        segment = libc.shmget(0, ctypes.c_size_t(50 << 20), 0o600)
        if segment < 0: sys.exit(5)
        place = libc.shmat(segment, None, 0)
        ctypes.memset(place, 1, 50 << 20)
        libc.shmdt(ctypes.c_void_p(place))
time.sleep(40)
print("survived")
' "#;

#[tokio::test]
async fn memory_that_nobody_has_mapped_counts() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let small = Resources::default().with_memory_bytes(100 << 20);
    let sandbox = provider.create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let state = sandbox.record().await.expect("a record").limits["memory"].state;
    let python = sandbox.commands().run(&Command::shell("command -v python3")).await.expect("an output");
    sandbox.destroy().await.expect("destroyed");
    if state != LimitState::Watched {
        println!("skipped: the kernel keeps the memory limit here");
        return;
    }
    let mut scripts = vec![(
        "a file system in memory",
        "head -c 200000000 /dev/zero > /dev/shm/x || exit 3; sleep 40; echo survived".to_owned(),
    )];
    if python.status == ExitStatus::Code(0) {
        scripts.extend(["memfd", "sysv"].map(|kind| (kind, format!("{PYTHON}{kind}"))));
    } else {
        println!("skipped in part: there is no Python here");
    }
    let mut ended = run_each(&bed, small, &scripts).await;
    // Where sandbox root may bound its namespace of segments, the kernel refuses them in the first place.
    ended.retain(|(name, output)| name != "sysv" || output.status != ExitStatus::Code(5));
    assert_all_ended(ended, KillCause::Oom);
    bed.assert_empty("after the memory").await;
}

#[tokio::test]
async fn memory_that_several_share_counts_once() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let small = Resources::default().with_memory_bytes(160 << 20);
    let sandbox = provider.create(CreateOptions::new().with_resources(small)).await.expect("a sandbox");
    let script = r#"command -v python3 >/dev/null || { echo none; exit 0; }
exec python3 -c '
import mmap, os, time
fd = os.memfd_create("shared")
os.ftruncate(fd, 80 << 20)
place = mmap.mmap(fd, 80 << 20)
def touch():
    for at in range(0, 80 << 20, 4096): place[at] = 1
touch()
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        touch(); time.sleep(6); os._exit(0)
    children.append(pid)
for pid in children: assert os.waitpid(pid, 0)[1] == 0
print("survived")
'"#;
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("an output");
    match output.stdout_lossy().trim() {
        "none" => println!("skipped: there is no Python here"),
        said => assert_eq!(said, "survived", "{output:?}"),
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after the shared memory").await;
}
