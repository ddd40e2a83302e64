//! Copies of sandboxes: what passes on, that each goes its own way, and who dies in the middle.

use std::sync::Arc;
use std::time::Duration;

use rustix::fs::FlockOperation;
use sandbar_core::{
    Command, CreateOptions, Deadline, DeadlineMode, EgressPolicy, EnvVars, ForkOptions, ForkOutcome, Labels,
    Lifetime, ProviderExt, Sandbox, SandboxExt, SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, create, end_shim, eventually, kill, shim_pid};

pub(crate) async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

pub(crate) async fn fork(sandbox: &dyn Sandbox) -> (Arc<dyn Sandbox>, ForkOutcome) {
    sandbox.require_forking().expect("forking").fork(ForkOptions::default()).await.expect("a copy")
}

pub(crate) async fn end(bed: &Bed, sandboxes: &[&dyn Sandbox]) {
    for sandbox in sandboxes {
        sandbox.destroy().await.expect("destroyed");
    }
    bed.assert_empty("after forks").await;
}

/// Each generation writes a file of its own and changes one that all have.
pub(crate) async fn generations(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let mut current = create(&bed.provider()).await;
    text(&*current, "mkdir -p ~/all && echo 0 > ~/common && echo old > /tmp/gone").await;
    let mut earlier = Vec::new();
    for n in 1..=count {
        let (copy, outcome) = fork(&*current).await;
        assert!(!outcome.processes_preserved);
        let script = format!(
            "[ $(cat ~/common) = {} ] && echo {n} > ~/common && echo {n} > ~/all/{n} && rm -rf /tmp/gone && mkdir /tmp/gone && touch /tmp/gone/{n} && rm -f ~/all/{} && ls /tmp/gone",
            n - 1,
            n.wrapping_sub(2)
        );
        assert_eq!(text(&*copy, &script).await, n.to_string(), "generation {n}");
        let parent = std::mem::replace(&mut current, copy);
        assert_eq!(text(&*parent, "cat ~/common").await, (n - 1).to_string(), "the parent of {n}");
        earlier.push(parent);
        // Some have their files after all that came later; the others are gone by then.
        if earlier.len() > 3 {
            earlier.remove(1).destroy().await.expect("destroyed");
        }
    }
    let wanted = format!("{}\n{}", count - 1, count);
    assert_eq!(text(&*current, "ls ~/all | sort -n").await, wanted);
    assert_eq!(text(&*earlier[0], "cat ~/common; cat /tmp/gone; ls ~/all").await, "0\nold");
    for sandbox in &earlier {
        sandbox.destroy().await.expect("destroyed");
    }
    end(&bed, &[&*current]).await;
}

#[tokio::test]
async fn what_passes_on_is_what_is_said_and_nothing_else() {
    let Some(bed) = Bed::new() else { return };
    let options = CreateOptions::new()
        .with_name("parent".parse().expect("a name"))
        .with_labels(Labels::new().with("team", "blue").expect("a label"))
        .with_env(EnvVars::new().with("KEPT", "value").expect("a variable"))
        .with_deadline(Duration::from_secs(3000));
    let parent = bed.provider().create(options).await.expect("a sandbox");
    let port = parent.require_ports().expect("ports").publish(8000).await.expect("published");
    text(&*parent, "echo one > /tmp/file; echo two > ~/file; chmod 640 ~/file; ln ~/file ~/link").await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!((outcome.mechanism.as_str(), outcome.copied_bytes), ("layer", 0));
    assert_eq!(
        text(&*copy, "cat /tmp/file ~/link; echo $KEPT; stat -c %a ~/file").await,
        "one\ntwo\nvalue\n640"
    );
    let (mine, theirs) = (copy.record().await.expect("a record"), parent.record().await.expect("a record"));
    assert_eq!(
        (mine.labels, mine.template, mine.egress.policy),
        (theirs.labels, theirs.template, theirs.egress.policy)
    );
    assert_eq!((mine.name, mine.ports), (None, Vec::new()));
    let gap = mine.deadline.expect("a deadline").duration_since(theirs.deadline.expect("a deadline"));
    assert!(gap.unsigned_abs() < Duration::from_secs(5), "{gap:?}");
    // The parent is as it was, ports too.
    assert_eq!((theirs.state, theirs.ports), (State::Running, vec![port]));
    for file in ["/etc/machine-id", "/etc/hostname"] {
        let read = format!("cat {file}");
        assert_ne!(text(&*parent, &read).await, text(&*copy, &read).await, "{file}");
    }
    text(&*copy, "echo copy >> ~/file; echo mine > ~/new").await;
    text(&*parent, "echo parent >> ~/file; echo its > ~/other").await;
    assert_eq!(text(&*copy, "cat ~/file; ls ~").await, "two\ncopy\nfile\nlink\nnew");
    assert_eq!(text(&*parent, "cat ~/file; ls ~").await, "two\nparent\nfile\nlink\nother");
    // The parent's shim goes on with the next agent: its end is seen, its deadline is told, it sleeps.
    parent.set_deadline(Deadline::In(Duration::from_secs(4000)), DeadlineMode::Set).await.expect("set");
    let pausing = parent.require_pausing().expect("pausing");
    assert!(pausing.hibernate().await.expect("asleep").processes_preserved);
    assert!(pausing.resume().await.expect("awake").processes_preserved);
    end_shim(&bed, parent.id()).await;
    assert_eq!(text(&*parent, "cat ~/other").await, "its", "another shim adopts it");
    kill(agent_pid(&bed, parent.id()));
    eventually("its end is seen", async || parent.record().await.expect("a record").state == State::Stopped)
        .await;
    pausing.resume().await.expect("started");
    assert_eq!(text(&*parent, "cat ~/file").await, "two\nparent");
    // One right after the other: the agent of before is still on its way out.
    let (one, first) = fork(&*parent).await;
    let (two, second) = fork(&*parent).await;
    assert_eq!((first.mechanism.as_str(), second.mechanism.as_str()), ("layer", "layer"));
    end(&bed, &[&*parent, &*copy, &*one, &*two]).await;
}

#[tokio::test]
async fn a_stopped_one_is_forked_and_stays_stopped() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    text(&*parent, "echo kept > ~/file").await;
    kill(shim_pid(&bed, parent.id()).expect("a shim"));
    kill(agent_pid(&bed, parent.id()));
    let stopped = async || parent.record().await.expect("a record").state == State::Stopped;
    eventually("it is found stopped", stopped).await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "layer");
    assert_eq!(text(&*copy, "cat ~/file; echo more >> ~/file").await, "kept");
    assert_eq!(parent.record().await.expect("a record").state, State::Stopped);
    // Nothing was written since.
    let (second, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "layer");
    assert_eq!(text(&*second, "cat ~/file; echo more >> ~/file").await, "kept");
    assert_eq!(parent.record().await.expect("a record").state, State::Stopped);
    parent.require_pausing().expect("pausing").resume().await.expect("started");
    assert_eq!(text(&*parent, "cat ~/file; echo its >> ~/file").await, "kept");
    let (third, _) = fork(&*parent).await;
    assert_eq!(text(&*third, "cat ~/file").await, "kept\nits");
    end(&bed, &[&*copy, &*second, &*third, &*parent]).await;
}

#[tokio::test]
async fn what_its_maker_owns_has_copies_that_its_maker_owns() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned);
    let parent = provider.create(options).await.expect("a sandbox");
    text(&*parent, "echo kept > ~/file").await;
    let (copy, _) = fork(&*parent).await;
    assert_eq!(text(&*copy, "cat ~/file").await, "kept");
    drop((parent, copy, provider));
    eventually("all that it owned is gone", async || {
        bed.provider().list_all(sandbar_core::Query::new()).await.expect("a listing").is_empty()
    })
    .await;
    bed.assert_empty("after its maker").await;
}

#[tokio::test]
async fn a_copy_can_have_another_policy() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    if parent.record().await.expect("a record").egress.gateway.is_none() {
        println!("skipped: this machine has no packet filter");
        return end(&bed, &[&*parent]).await;
    }
    let policy = EgressPolicy::allow(["example.test:443"]).expect("a policy");
    let options = ForkOptions { egress: Some(policy.clone()), ..ForkOptions::default() };
    let (copy, _) = parent.require_forking().expect("forking").fork(options).await.expect("a copy");
    assert_eq!(copy.record().await.expect("a record").egress.policy, Some(policy.clone()));
    let (grandchild, _) = fork(&*copy).await;
    assert_eq!(grandchild.record().await.expect("a record").egress.policy, Some(policy));
    assert_eq!(parent.record().await.expect("a record").egress.policy, Some(EgressPolicy::DenyAll));
    end(&bed, &[&*parent, &*copy, &*grandchild]).await;
}

#[tokio::test]
async fn whoever_is_killed_in_a_fork_leaves_the_parent_as_before_or_forked() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    text(&*parent, "echo 0 > ~/count").await;
    for round in 1..=crate::support::size(12) {
        let (provider, id) = (bed.provider(), parent.id().clone());
        let forking = tokio::spawn(async move {
            let parent = provider.require(&id).await.expect("a handle");
            parent
                .require_forking()
                .expect("forking")
                .fork(ForkOptions::default())
                .await
                .map(|(copy, _)| copy)
        });
        // Some moment of the fork, another one in each round.
        tokio::time::sleep(Duration::from_millis(u64::from(round % 12))).await;
        if round % 3 == 0 {
            forking.abort();
        } else {
            shim_pid(&bed, parent.id()).into_iter().for_each(kill);
        }
        // A fork whose caller is gone may go on: it ends connections that are kept for later, so this looks with one of its own.
        let parent = bed.provider().require(parent.id()).await.expect("a handle");
        if let Ok(Ok(copy)) = forking.await {
            assert_eq!(text(&*copy, "cat ~/count").await, (round - 1).to_string());
            copy.destroy().await.expect("destroyed");
        }
        if parent.record().await.expect("a record").state == State::Stopped {
            parent.require_pausing().expect("pausing").resume().await.expect("started");
        }
        assert_eq!(
            text(&*parent, &format!("cat ~/count; echo {round} > ~/count")).await,
            (round - 1).to_string()
        );
    }
    let rest = bed.provider().list_all(sandbar_core::Query::new()).await.expect("a listing");
    for record in rest {
        bed.provider().destroy(&record.id).await.expect("destroyed");
    }
    bed.assert_empty("after kills").await;
}

/// Each writes in its own way, all the time: into a file that it holds open, below a relative folder, through a map, and in transactions.
const WRITERS: &str = r"
import mmap, os, sqlite3, threading, time
home = os.path.expanduser('~')
os.makedirs(home + '/folder/below', exist_ok=True)
os.chdir(home + '/folder/below')
log = open(home + '/log', 'a')
file = open(home + '/map', 'w+b'); file.truncate(1 << 20)
area = mmap.mmap(file.fileno(), 1 << 20)
base = sqlite3.connect(home + '/base'); base.execute('create table t (n integer primary key)'); base.execute('create table c (n integer)')
base.execute('insert into c values (0)'); base.commit()
print('begun', flush=True)
n = 0
while True:
    n += 1
    log.write(f'{n}\n'); log.flush()
    os.rename(f'file{n-1}', f'file{n}') if n > 1 else open('file1', 'w').close()
    area[0:8] = n.to_bytes(8, 'little'); area[(1 << 20) - 8:1 << 20] = n.to_bytes(8, 'little')
    base.execute('insert into t values (?)', (n,)); base.execute('update c set n = ?', (n,)); base.commit()
";

/// Whether what they wrote is of one moment, and of which.
const CHECK: &str = r"
import os, sqlite3
home = os.path.expanduser('~')
lines = open(home + '/log').read().split('\n')
assert lines.pop() == '', 'a line is cut'
assert lines == [str(n) for n in range(1, len(lines) + 1)], 'a line is missing'
logged = len(lines)
names = os.listdir(home + '/folder/below')
assert len(names) == 1, names
named = int(names[0][4:])
data = open(home + '/map', 'rb').read()
first, last = int.from_bytes(data[:8], 'little'), int.from_bytes(data[-8:], 'little')
base = sqlite3.connect(home + '/base')
assert base.execute('pragma integrity_check').fetchall() == [('ok',)]
rows, most, said = base.execute('select count(*), max(n), (select n from c) from t').fetchone()
assert rows == most == said or (rows, most, said) == (0, None, 0), (rows, most, said)
assert logged >= named >= first >= last >= rows >= logged - 1, (logged, named, first, last, rows)
print(logged)
";

/// Forks under live writers, one copy after the other.
pub(crate) async fn under_writers(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    of_writers(&bed, &*parent, count, &["copy", "reflink", "subvolume"]).await;
}

/// The same of this sandbox, by one of these mechanisms; ends all.
pub(crate) async fn of_writers(bed: &Bed, parent: &dyn Sandbox, count: u32, mechanisms: &[&str]) {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        println!("skipped: this machine has no python3");
        return end(bed, &[parent]).await;
    }
    let start = format!(
        "cat > ~/writers.py <<'END'\n{WRITERS}\nEND\ncat > ~/check.py <<'END'\n{CHECK}\nEND\npython3 ~/writers.py > ~/said 2>&1 </dev/null & echo $! > /tmp/pid; until grep -q begun ~/said; do sleep 0.01; done"
    );
    text(parent, &start).await;
    let lines =
        async || text(parent, "wc -l < ~/log 2>/dev/null || echo 0").await.parse::<u64>().expect("a number");
    let mut before = 0;
    for _ in 0..count {
        eventually("the writers go on", async || lines().await > before + 20).await;
        let (copy, outcome) = fork(parent).await;
        assert!(mechanisms.contains(&outcome.mechanism.as_str()), "{outcome:?}");
        let of_copy: u64 = text(&*copy, "python3 ~/check.py").await.parse().expect("a number");
        assert!(of_copy > before, "it has what was written until then");
        before = of_copy;
        eventually("the writers go on after it", async || lines().await > of_copy + 5).await;
        // Neither sees what the other writes.
        assert_eq!(
            text(&*copy, "echo mine > ~/log; python3 -c 'open(\"/tmp/x\",\"w\")'; wc -l < ~/log").await,
            "1"
        );
        assert_eq!(text(parent, "ls /tmp/x 2>/dev/null; kill -0 $(cat /tmp/pid) && echo on").await, "on");
        copy.destroy().await.expect("destroyed");
    }
    text(parent, "kill $(cat /tmp/pid)").await;
    assert!(text(parent, "python3 ~/check.py").await.parse::<u64>().expect("a number") > before);
    end(bed, &[parent]).await;
}

#[tokio::test]
async fn a_sleeper_is_forked_and_sleeps_on() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    text(&*parent, "echo kept > ~/file; rm -rf /tmp/some; mkdir /tmp/some; sleep 4000 </dev/null >/dev/null 2>&1 & echo $! > ~/pid").await;
    parent.require_pausing().expect("pausing").hibernate().await.expect("asleep");
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(text(&*copy, "cat ~/file; ls -d /tmp/some").await, "kept\n/tmp/some", "{outcome:?}");
    assert_eq!(parent.record().await.expect("a record").state, State::Sleeping);
    assert!(parent.require_pausing().expect("pausing").resume().await.expect("awake").processes_preserved);
    assert_eq!(text(&*parent, "kill -0 $(cat ~/pid) && echo on").await, "on");
    end(&bed, &[&*copy, &*parent]).await;
}

#[tokio::test]
async fn what_was_removed_and_replaced_is_so_in_a_copy() {
    let Some(bed) = Bed::new() else { return };
    let first = create(&bed.provider()).await;
    text(&*first, "mkdir -p ~/a/b ~/c && echo 1 > ~/a/b/one && echo 2 > ~/c/two && ln -s two ~/c/link").await;
    let (second, _) = fork(&*first).await;
    // Something else runs, so that this one is copied.
    text(&*second, "sleep 4000 </dev/null >/dev/null 2>&1 & rm -r ~/a/b && rm ~/c/two && rm -r ~/a && mkdir ~/a && echo 3 > ~/a/three && chmod 700 ~/c && touch -d @1000000000 ~/c").await;
    let (third, outcome) = fork(&*second).await;
    assert_ne!(outcome.mechanism, "layer");
    let look = "cd ~; find a c | sort; stat -c '%a %Y' c; readlink c/link";
    let wanted = "a\na/three\nc\nc/link\n700 1000000000\ntwo";
    assert_eq!(text(&*second, look).await, wanted);
    assert_eq!(text(&*third, look).await, wanted);
    assert_eq!(text(&*first, "cat ~/a/b/one ~/c/link").await, "1\n2");
    end(&bed, &[&*first, &*second, &*third]).await;
}

#[tokio::test]
async fn a_shim_killed_while_it_copies_leaves_its_sandbox_going_on() {
    let Some(bed) = Bed::new() else { return };
    killed_while_copying(&bed).await;
}

/// A copy is there whole or not at all, and its parent goes on.
pub(crate) async fn killed_while_copying(bed: &Bed) {
    let parent = create(&bed.provider()).await;
    text(&*parent, "head -c 40000000 /dev/urandom > ~/data; sha256sum ~/data | cut -c 1-64 > ~/sum; (while :; do echo x >> ~/log; sleep 0.01; done) </dev/null >/dev/null 2>&1 & true").await;
    for round in 1..=crate::support::size(6) {
        let (provider, id) = (bed.provider(), parent.id().clone());
        let forking = tokio::spawn(async move {
            let parent = provider.require(&id).await.expect("a handle");
            parent
                .require_forking()
                .expect("forking")
                .fork(ForkOptions::default())
                .await
                .map(|(copy, _)| copy)
        });
        tokio::time::sleep(Duration::from_millis(u64::from(round % 6) * 12)).await;
        shim_pid(bed, parent.id()).into_iter().for_each(kill);
        if let Ok(Ok(copy)) = forking.await {
            text(&*copy, "[ $(sha256sum ~/data | cut -c 1-64) = $(cat ~/sum) ]").await;
            copy.destroy().await.expect("destroyed");
        }
        let lines = async || text(&*parent, "wc -l < ~/log").await.parse::<u64>().expect("a number");
        let now = lines().await;
        eventually("its processes go on", async || lines().await > now).await;
    }
    end(bed, &[&*parent]).await;
}

#[tokio::test]
async fn volumes_are_shared_read_only_or_not_at_all() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let volume: sandbar_core::VolumeName = "shared".parse().expect("a name");
    provider.volumes().expect("volumes").create(&volume).await.expect("a volume");
    let path = sandbar_core::GuestPath::new("/data").expect("a path");
    let options = CreateOptions::new().with_volume(sandbar_core::VolumeMount { volume, path });
    let parent = provider.create(options).await.expect("a sandbox");
    text(&*parent, "echo its > /data/file").await;
    let forking = parent.require_forking().expect("forking");
    let error = forking.fork(ForkOptions::default()).await.map(|_| ()).expect_err("refused");
    assert!(
        error.kind() == sandbar_core::ErrorKind::Unsupported && error.message().contains("shared"),
        "{error}"
    );
    let shared =
        || ForkOptions { volumes: sandbar_core::ForkVolumes::ShareReadOnly, ..ForkOptions::default() };
    let (copy, _) = forking.fork(shared()).await.expect("a copy");
    assert_eq!(
        text(&*copy, "cat /data/file; touch /data/mine 2>/dev/null || echo refused").await,
        "its\nrefused"
    );
    text(&*parent, "echo more >> /data/file").await;
    assert_eq!(text(&*copy, "cat /data/file").await, "its\nmore");
    let grandchild = copy.require_forking().expect("forking").fork(shared()).await.expect("a copy").0;
    assert_eq!(text(&*grandchild, "touch /data/mine 2>/dev/null || echo refused").await, "refused");
    end(&bed, &[&*grandchild, &*copy, &*parent]).await;
}

/// Copies of one parent, one after the other, each gone before the next: its layers stay few.
pub(crate) async fn of_one(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    for n in 1..=count {
        text(&*parent, &format!("echo {n} > ~/last; touch ~/f{n}")).await;
        let (copy, outcome) = fork(&*parent).await;
        assert_eq!(outcome.mechanism, "layer", "{n}");
        let seen = text(&*copy, "cat ~/last; ls ~ | grep -c ^f").await;
        assert_eq!(seen, format!("{n}\n{n}"));
        copy.destroy().await.expect("destroyed");
    }
    end(&bed, &[&*parent]).await;
}

#[tokio::test]
async fn what_was_written_before_a_fork_counts_after_it() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    text(&*parent, "head -c 20000000 /dev/urandom > ~/data; sync ~/data 2>/dev/null || true").await;
    let disk = async |sandbox: &dyn Sandbox| {
        sandbox
            .require_metrics()
            .expect("metrics")
            .sample()
            .await
            .expect("a sample")
            .disk_bytes
            .expect("counted")
    };
    let before = disk(&*parent).await;
    assert!(before >= 20_000_000, "{before}");
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "layer");
    for sandbox in [&*parent, &*copy] {
        let after = disk(sandbox).await;
        assert!((20_000_000..before + 5_000_000).contains(&after), "{before} {after}");
    }
    end(&bed, &[&*copy, &*parent]).await;
}

#[tokio::test]
async fn a_long_copy_keeps_nobody_out_of_the_store() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    let script = "head -c 30000000 /dev/urandom > ~/data; sleep 4000 </dev/null >/dev/null 2>&1 &";
    text(&*parent, script).await;
    std::fs::create_dir_all(bed.home().join("layers")).expect("a folder");
    let place = bed.home().join("layers/lock");
    let lock = std::fs::File::options().create(true).append(true).open(place).expect("a lock");
    // Whoever has the store alone keeps a copy from being named, and not from being made.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).expect("alone");
    let (provider, id) = (bed.provider(), parent.id().clone());
    let forking = tokio::spawn(async move {
        let parent = provider.require(&id).await.expect("a handle");
        parent.require_forking().expect("forking").fork(ForkOptions::default()).await.map(|(copy, _)| copy)
    });
    let staged = || {
        let names = std::fs::read_dir(bed.home().join("layers")).expect("layers");
        names.flatten().any(|name| name.file_name().to_string_lossy().starts_with(".new-"))
    };
    eventually("the copy is begun", async || staged()).await;
    rustix::fs::flock(&lock, FlockOperation::Unlock).expect("for all");
    let copy = forking.await.expect("no panic").expect("a copy");
    assert_eq!(text(&*copy, "stat -c %s ~/data").await, "30000000");
    end(&bed, &[&*copy, &*parent]).await;
}

#[tokio::test]
async fn what_is_in_memory_only_stays_with_the_parent() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    for (make, look, seen) in [
        ("echo here > /dev/shm/mark", "cat /dev/shm/mark", "here"),
        ("rm /dev/shm/mark; ipcmk -M 4096 >/dev/null", "ipcs -m | grep -c 4096", "1"),
    ] {
        text(&*parent, make).await;
        let (copy, outcome) = fork(&*parent).await;
        assert_ne!(outcome.mechanism, "layer", "{make}");
        assert_eq!(text(&*parent, look).await, seen, "{make}");
        copy.destroy().await.expect("destroyed");
    }
    // With nothing of that any more it is as before.
    text(&*parent, "ipcrm --all=shm").await;
    let (copy, outcome) = fork(&*parent).await;
    assert_eq!(outcome.mechanism, "layer");
    end(&bed, &[&*parent, &*copy]).await;
}

#[tokio::test]
async fn what_an_import_puts_together_is_in_no_copy() {
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    let name = ".sandbar-import-0123456789abcdef01234567";
    // Something runs, so that it is copied under it.
    text(
        &*parent,
        &format!("mkdir -p ~/{name}/new && echo half > ~/{name}/new/file && (sleep 1000 >/dev/null 2>&1 &)"),
    )
    .await;
    let (copy, outcome) = fork(&*parent).await;
    assert_ne!(outcome.mechanism, "layer");
    if outcome.mechanism != "subvolume" {
        assert_eq!(text(&*copy, "ls -A ~ | grep -c sandbar-import || true").await, "0");
    }
    assert_eq!(text(&*parent, &format!("cat ~/{name}/new/file")).await, "half");
    end(&bed, &[&*parent, &*copy]).await;
}

/// More at once than the stack of layers is made shorter for meanwhile.
#[tokio::test]
async fn many_copies_at_once_of_an_idle_one_all_come() {
    const FORKERS: usize = 8;
    const EACH: usize = 6;
    let Some(bed) = Bed::new() else { return };
    let parent = create(&bed.provider()).await;
    text(&*parent, "echo mine > ~/file").await;
    let forkers = (0..FORKERS).map(|_| {
        let parent = Arc::clone(&parent);
        tokio::spawn(async move {
            for _ in 0..EACH {
                let (copy, _) = fork(&*parent).await;
                assert_eq!(text(&*copy, "cat ~/file").await, "mine");
                copy.destroy().await.expect("destroyed");
            }
        })
    });
    for forker in forkers.collect::<Vec<_>>() {
        forker.await.expect("all came");
    }
    end(&bed, &[&*parent]).await;
}
