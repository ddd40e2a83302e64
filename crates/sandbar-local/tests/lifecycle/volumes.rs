//! Volumes: whose they are, who holds them, and that they lose nothing.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use sandbar_core::{
    Command, CreateOptions, EnvVars, ErrorKind, GuestPath, HostMount, MountAccess, ProviderExt, Resources,
    Sandbox, SandboxExt, SandboxProvider, State, VolumeInfo, VolumeMount, VolumeName, VolumeQuery, Volumes,
};
use sandbar_local::LocalProvider;

use crate::support::{Bed, agent_pid, end_shim, eventually, has_root_inside, kill};

fn name(text: &str) -> VolumeName {
    VolumeName::new(text).expect("a name")
}

fn path(text: &str) -> GuestPath {
    GuestPath::new(text).expect("a path")
}

fn part(provider: &LocalProvider) -> &dyn Volumes {
    provider.require_volumes().expect("volumes")
}

fn with(options: CreateOptions, volume: &str, at: &str) -> CreateOptions {
    options.with_volume(VolumeMount { volume: name(volume), path: path(at) })
}

async fn holder(provider: &LocalProvider, volume: &str) -> Arc<dyn Sandbox> {
    provider.create(with(CreateOptions::new(), volume, "/mnt/v")).await.expect("a sandbox")
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{script}: {output:?}");
    output.stdout_lossy().trim().to_owned()
}

async fn info(provider: &LocalProvider, volume: &str) -> VolumeInfo {
    let query = VolumeQuery { prefix: volume.to_owned(), attached: None };
    let mut listed = part(provider).list(query).await.expect("a listing");
    assert_eq!(listed.len(), 1, "{listed:?}");
    listed.remove(0)
}

#[tokio::test]
async fn it_belongs_to_the_user_and_several_share_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    part(&provider).create(&name("shared")).await.expect("made");
    let one = holder(&provider, "shared").await;
    let two = holder(&provider, "shared").await;
    assert_eq!(text(&*one, "stat -c '%U %G %u %a' /mnt/v").await, "user user 1000 755");
    text(&*one, "echo one > /mnt/v/mine && mkdir /mnt/v/d && ln -s d /mnt/v/l && mkfifo /mnt/v/p").await;
    assert_eq!(text(&*two, "cat /mnt/v/mine && stat -c %U /mnt/v/mine").await, "one\nuser");
    if has_root_inside() {
        text(&*one, "sudo sh -c 'echo root > /mnt/v/roots && chmod 600 /mnt/v/roots'").await;
        assert_eq!(text(&*two, "stat -c %u /mnt/v/roots && sudo cat /mnt/v/roots").await, "0\nroot");
        let refused = two.commands().run(&Command::shell("cat /mnt/v/roots")).await.expect("it ran");
        assert!(!refused.status.is_success(), "{refused:?}");
        let made = two.commands().run(&Command::shell("sudo mknod /mnt/v/null c 1 3")).await.expect("it ran");
        assert!(!made.status.is_success(), "a device was made");
    }
    let options = text(&*one, "grep ' /mnt/v ' /proc/self/mountinfo | cut -d' ' -f6").await;
    for option in ["rw", "nosuid", "nodev"] {
        assert!(options.split(',').any(|has| has == option), "{options}");
    }
    for sandbox in [one, two] {
        sandbox.destroy().await.expect("destroyed");
    }
    assert!(part(&provider).remove(&name("shared")).await.expect("removed"));
    bed.assert_empty("after it").await;
}

/// Numbers are written without a pause; after each thing that happens to the sandbox there are as many in a row as before, or more.
#[tokio::test]
async fn no_write_is_lost_by_what_happens_to_sandboxes() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    part(&provider).create(&name("kept")).await.expect("made");
    let writer = "echo $$ > /mnt/v/pid; i=0; while :; do echo $i; i=$((i+1)); done >> /mnt/v/numbers";
    let start = format!(
        "rm -f /mnt/v/numbers; sh -c '{writer}' </dev/null >/dev/null 2>&1 & until [ -s /mnt/v/numbers ]; do :; done"
    );
    let count = "awk 'BEGIN { n = 0 } $1 != n { print \"lost at\", n; exit 1 } { n++ } END { print n }' /mnt/v/numbers";
    let whole = "head -c $(($(stat -c %s /mnt/v/numbers) / 2)) /mnt/v/numbers | sed '$d' | sha256sum";

    let sandbox = holder(&provider, "kept").await;
    text(&*sandbox, &start).await;
    let pausing = sandbox.require_pausing().expect("pausing");
    let mut before = 0;
    for _ in 0..3 {
        pausing.hibernate().await.expect("asleep");
        assert!(info(&provider, "kept").await.attached, "asleep and not attached");
        pausing.resume().await.expect("awake");
        text(&*sandbox, "kill -STOP $(cat /mnt/v/pid)").await;
        let now = text(&*sandbox, count).await.parse::<u64>().expect("a number");
        assert!(now >= before, "{now} after {before}");
        before = now;
        text(&*sandbox, "kill -CONT $(cat /mnt/v/pid)").await;
    }
    // Its shim dies, another takes over.
    end_shim(&bed, sandbox.id()).await;
    text(&*sandbox, "kill -STOP $(cat /mnt/v/pid)").await;
    assert!(text(&*sandbox, count).await.parse::<u64>().expect("a number") >= before);
    let sum = text(&*sandbox, whole).await;
    assert!(!sum.is_empty());

    // All in it is killed: the next sandbox that holds it has what was written.
    let witness = holder(&provider, "kept").await;
    let seen = text(&*witness, count).await;
    kill(agent_pid(&bed, sandbox.id()));
    let state = async || provider.describe(sandbox.id()).await.expect("an answer").map(|record| record.state);
    eventually("it is stopped", async || state().await != Some(State::Running)).await;
    assert_eq!(text(&*witness, count).await, seen);
    assert!(part(&provider).remove(&name("kept")).await.is_err(), "removed under a witness");
    sandbox.destroy().await.expect("destroyed");
    assert_eq!(text(&*witness, count).await, seen);

    // A destruction with a writer at it.
    text(&*witness, &start).await;
    witness.destroy().await.expect("destroyed");
    let last = holder(&provider, "kept").await;
    // The last line may be half of one: its writer was killed in it.
    text(&*last, "sed -i '$d' /mnt/v/numbers").await;
    assert!(text(&*last, count).await.parse::<u64>().expect("a number") > 0);
    last.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn what_stopped_or_can_not_be_read_holds_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    part(&provider).create(&name("held")).await.expect("made");
    part(&provider).create(&name("free")).await.expect("made");
    let sandbox = holder(&provider, "held").await;
    kill(agent_pid(&bed, sandbox.id()));
    let describe = async || provider.describe(sandbox.id()).await.expect("an answer").expect("a record");
    eventually("it is stopped", async || describe().await.state == State::Stopped).await;
    assert_eq!(describe().await.volumes[0].name, name("held"));
    let error = part(&provider).remove(&name("held")).await.expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.message().contains(sandbox.id().as_str()) && error.hint().is_some(), "{error}");
    assert!(!info(&provider, "free").await.attached);

    // Nobody knows what it holds.
    let record = bed.folder(sandbox.id()).join("record.json");
    let kept = std::fs::read(&record).expect("a record");
    std::fs::write(&record, "{").expect("spoilt");
    for volume in ["held", "free"] {
        assert!(info(&provider, volume).await.attached, "{volume}: unknown is not attached");
        let error = part(&provider).remove(&name(volume)).await.expect_err("unknown");
        assert!(error.message().contains("unknown"), "{error}");
        assert!(part(&provider).exists(&name(volume)).await.expect("an answer"));
    }
    std::fs::write(&record, kept).expect("mended");
    assert!(part(&provider).remove(&name("free")).await.expect("removed"));
    sandbox.destroy().await.expect("destroyed");
    assert!(part(&provider).remove(&name("held")).await.expect("removed"));
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn it_is_measured_and_removed_whatever_is_in_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    part(&provider).create(&name("big")).await.expect("made");
    let empty = info(&provider, "big").await;
    assert!(empty.created_at.is_some());
    let little = CreateOptions::new().with_resources(Resources::default().with_disk_bytes(8 << 20));
    let sandbox = provider.create(with(little, "big", "/mnt/v")).await.expect("a sandbox");
    let fill = "mkdir -p /mnt/v/a/b && for n in 1 2 3 4 5; do head -c 4194304 /dev/urandom > /mnt/v/a/b/f$n; done && ln /mnt/v/a/b/f1 /mnt/v/again && chmod 0 /mnt/v/a";
    text(&*sandbox, fill).await;
    if has_root_inside() {
        text(&*sandbox, "sudo mkdir -m 0 /mnt/v/roots").await;
    }
    text(&*sandbox, "chmod 700 /mnt/v").await;
    let size = info(&provider, "big").await.size_bytes.expect("a size");
    assert!((20 << 20..22 << 20).contains(&size), "{size}, {empty:?}");
    // Its limit is on what it wrote to itself.
    let stats = sandbox.require_metrics().expect("metrics").sample().await.expect("measured");
    assert!(stats.disk_bytes.is_none_or(|bytes| bytes < 8 << 20), "{stats:?}");
    sandbox.destroy().await.expect("destroyed");
    assert!(part(&provider).remove(&name("big")).await.expect("removed"));
    assert!(std::fs::read_dir(bed.home().join("volumes")).expect("a folder").next().is_none());
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn what_can_not_be_had_is_refused_and_leaves_nothing() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let refused = async |options: CreateOptions| {
        let error = provider.create(options).await.map(|_| ()).expect_err("refused");
        bed.assert_empty("after a refusal").await;
        error
    };
    let error = refused(with(CreateOptions::new(), "none", "/mnt/v")).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.message().contains("none") && error.hint().is_some(), "{error}");
    part(&provider).create(&name("v")).await.expect("made");
    for at in ["/proc/x", "/etc", "/run/v"] {
        assert_eq!(
            refused(with(CreateOptions::new(), "v", at)).await.kind(),
            ErrorKind::InvalidInput,
            "{at}"
        );
    }
    // With a writable mount an ordinary user's sandbox has a single id, and the volume may have been made with more.
    let folder = bed.scratch().join("folder");
    std::fs::create_dir(&folder).expect("a folder");
    let mount = HostMount { source: folder, target: path("/mnt/h"), access: MountAccess::ReadWrite };
    let options = with(CreateOptions::new(), "v", "/mnt/v").with_host_mount(mount);
    let made = provider.create(options).await;
    match (has_root_inside() && !rustix::process::geteuid().is_root(), made) {
        (true, Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("subordinate ids"), "{error}");
        }
        (false, Ok(sandbox)) => {
            text(&*sandbox, "touch /mnt/v/x /mnt/h/y").await;
            sandbox.destroy().await.expect("destroyed");
        }
        (_, made) => panic!("{:?}", made.map(|sandbox| sandbox.id().clone())),
    }
    bed.assert_empty("after it").await;
}

#[tokio::test]
async fn one_in_the_other_is_mounted_after_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    for volume in ["outer", "inner"] {
        part(&provider).create(&name(volume)).await.expect("made");
    }
    let options = with(with(CreateOptions::new(), "inner", "/srv/a/b"), "outer", "/srv/a");
    let sandbox = provider.create(options).await.expect("a sandbox");
    text(&*sandbox, "echo inner > /srv/a/b/f && echo outer > /srv/a/f").await;
    sandbox.destroy().await.expect("destroyed");
    let sandbox = holder(&provider, "inner").await;
    assert_eq!(text(&*sandbox, "cat /mnt/v/f").await, "inner");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

/// What another sandbox wrote in a volume chooses no place for the next one: a mount over the agent would be the first process, with all secrets.
#[tokio::test]
async fn a_link_in_a_volume_leads_no_other_volume() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    for volume in ["outer", "inner"] {
        part(&provider).create(&name(volume)).await.expect("made");
    }
    let two = |inner: &str| with(with(CreateOptions::new(), "outer", "/srv/v"), "inner", inner);
    let writer = provider.create(two("/mnt/i")).await.expect("a sandbox");
    let plant = "mkdir /srv/v/plain && ln -s /run/sandbar /srv/v/sub && ln -s /proc /srv/v/proc && ln -s / /srv/v/top \
        && printf '#!/bin/sh\\ncat /proc/self/fd/* > /srv/v/seen\\n' > /mnt/i/agent && chmod 755 /mnt/i/agent";
    text(&*writer, plant).await;
    writer.destroy().await.expect("destroyed");
    for at in ["/srv/v/sub", "/srv/v/proc", "/srv/v/top", "/srv/v/top/run/sandbar"] {
        let secret = EnvVars::new().with("SECRET", "not for the volume").expect("a variable");
        let error =
            provider.create(two(at).with_env(secret)).await.map(|_| ()).expect_err("a link leads the mount");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{at}: {error:?}");
        assert!(error.message().contains(at) && !error.to_string().contains("not for"), "{at}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("link")), "{at}: {error:?}");
        bed.assert_empty("after a refusal").await;
    }
    let sandbox = provider.create(two("/srv/v/plain")).await.expect("no link is in this path");
    let seen = "test -x /srv/v/plain/agent && test ! -e /srv/v/seen && ls /srv/v";
    assert_eq!(text(&*sandbox, seen).await, "plain\nproc\nsub\ntop");
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

/// The root file system is the sandbox' own, and so are its links; a restart follows them no further than that.
#[tokio::test]
async fn a_link_made_before_a_restart_leads_no_volume() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    part(&provider).create(&name("kept")).await.expect("made");
    let at = "/home/user/d/c";
    let sandbox = provider.create(with(CreateOptions::new(), "kept", at)).await.expect("a sandbox");
    let own = if has_root_inside() { "sudo chown user /home/user/d && " } else { "" };
    let replace = "mv ~/d ~/moved && mkdir ~/d && ln -s /run/sandbar ~/d/c && echo kept > ~/moved/c/f";
    text(&*sandbox, &format!("{own}{replace}")).await;
    let stopped = async || {
        kill(agent_pid(&bed, sandbox.id()));
        let state =
            async || provider.describe(sandbox.id()).await.expect("an answer").map(|found| found.state);
        eventually("it is stopped", async || state().await == Some(State::Stopped)).await;
    };
    stopped().await;
    let error =
        sandbox.require_pausing().expect("pausing").resume().await.expect_err("a link leads the mount");
    assert!(error.message().contains(at), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("link")), "{error:?}");
    let state = provider.describe(sandbox.id()).await.expect("an answer").expect("a record").state;
    assert_eq!(state, State::Stopped);
    assert!(info(&provider, "kept").await.attached);
    sandbox.destroy().await.expect("destroyed");
    let witness = holder(&provider, "kept").await;
    assert_eq!(text(&*witness, "ls /mnt/v && cat /mnt/v/f").await, "f\nkept");
    witness.destroy().await.expect("destroyed");
    bed.assert_empty("after it").await;
}

/// Each creation has the volume whole or is refused, and none that has it sees it go.
pub(crate) async fn race(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let volume = name("wanted");
    let hold = async || {
        // There are only so many removals.
        let sandbox = loop {
            part(&provider).create(&volume).await.expect("made, or there");
            match provider.create(with(CreateOptions::new(), "wanted", "/mnt/v")).await {
                Ok(sandbox) => break sandbox,
                // Somebody removed it between the two.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => panic!("{error:?}"),
            }
        };
        for _ in 0..3 {
            let script = "test $(stat -c %h /mnt/v) -gt 0 && echo x >> /mnt/v/log && test -s /mnt/v/log";
            text(&*sandbox, script).await;
            assert!(part(&provider).exists(&volume).await.expect("an answer"), "it went");
            let error = part(&provider).remove(&volume).await.expect_err("removed under its holder");
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
        sandbox.destroy().await.expect("destroyed");
    };
    let remove = async || match part(&provider).remove(&volume).await {
        Ok(true) => 1,
        Ok(false) => 0,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            0
        }
    };
    let holds = join_all((0..count).map(|_| hold()));
    let removals = async {
        let mut removed = 0;
        for number in 0..count {
            removed += remove().await;
            // At other moments of the creations.
            tokio::time::sleep(Duration::from_millis(u64::from(number % 7))).await;
        }
        removed
    };
    let (_, removed) = futures::join!(holds, removals);
    println!("{removed} of {count} removals came first");
    remove().await;
    assert!(!part(&provider).exists(&volume).await.expect("an answer"), "a volume that nobody holds stays");
    bed.assert_empty("after all").await;
}
