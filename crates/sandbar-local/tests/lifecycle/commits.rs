//! Templates made of sandboxes: what is captured and what is not, of whatever state, and who may die meanwhile.

use std::path::Path;
use std::process::{Command as HostCommand, Stdio};

use sandbar_core::{
    Command, CommitOptions, CreateOptions, Deadline, DeadlineMode, ErrorKind, GuestPath, HostMount,
    MountAccess, ProviderExt, Retry, Sandbox, SandboxExt, SandboxProvider, State, Template, TemplateId,
};

use crate::support::{Bed, agent_pid, create, end_shim, eventually, has_root_inside, kill, shim_pid};

fn at(path: &str) -> GuestPath {
    GuestPath::new(path).expect("a path")
}

fn id(name: &str) -> TemplateId {
    TemplateId::new(name).expect("an id")
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

fn options(sandbox: &dyn Sandbox, template: &str, paths: &[&str]) -> CommitOptions {
    CommitOptions {
        sandbox: sandbox.id().clone(),
        template: id(template),
        capture_paths: paths.iter().map(|path| at(path)).collect(),
        label: None,
    }
}

async fn commit(bed: &Bed, sandbox: &dyn Sandbox, template: &str) -> Template {
    let provider = bed.provider();
    let templates = provider.require_templates().expect("templates");
    templates.commit(options(sandbox, template, &[])).await.expect("committed")
}

async fn from(bed: &Bed, template: &str) -> std::sync::Arc<dyn Sandbox> {
    bed.provider().create(CreateOptions::new().with_template(id(template))).await.expect("a sandbox")
}

/// Nothing of a template that is not wanted any more, and nothing that nobody finished.
async fn tidy(bed: &Bed, templates: &[&str]) {
    let provider = bed.provider();
    for template in templates {
        provider.require_templates().expect("templates").remove(&id(template)).await.expect("removed");
    }
    bed.assert_empty("after templates").await;
    let unfinished: Vec<_> = unfinished(&bed.home());
    assert!(unfinished.is_empty(), "{unfinished:?}");
}

fn unfinished(home: &Path) -> Vec<String> {
    let names = std::fs::read_dir(home.join("layers")).into_iter().flatten().filter_map(Result::ok);
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect()
}

#[tokio::test]
async fn what_a_sandbox_has_comes_along_and_what_it_alone_may_have_does_not() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let script = "mkdir -p a/b; echo text > a/b/file; ln -s b/file a/link; ln a/b/file a/hard; chmod 750 a/b/file; \
                  cp /bin/true suid; chmod 6755 suid; mkfifo pipe; echo tmp > /tmp/kept; mkdir -m 2775 shared; \
                  python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; truncate -s 64M sparse";
    text(&*sandbox, script).await;
    let before = text(&*sandbox, "cat /etc/machine-id").await;
    let template = commit(&bed, &*sandbox, "first").await;
    assert!(
        template.size_bytes.is_some_and(|size| size > 5) && !template.in_use && template.created_at.is_some()
    );
    sandbox.destroy().await.expect("destroyed");
    let sandbox = from(&bed, "first").await;
    let look = "cat a/b/file a/link /tmp/kept; stat -c '%a %h' a/b/file; stat -c %a suid; \
                ls pipe sock 2>/dev/null; stat -c '%s %b' sparse | (read size blocks; echo $size $((blocks < 1000))); stat -c %U .";
    let seen = text(&*sandbox, look).await;
    assert_eq!(seen, "text\ntext\ntmp\n750 2\n755\n67108864 1\nuser");
    let mode = text(&*sandbox, "stat -c %a shared").await;
    assert!(!mode.starts_with('2') || mode.len() < 4, "a folder gives no group away: {mode}");
    assert_ne!(text(&*sandbox, "cat /etc/machine-id").await, before);
    assert_eq!(text(&*sandbox, "cat /etc/hostname").await, sandbox.id().as_str());
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &["first"]).await;
}

#[tokio::test]
async fn what_was_removed_stays_removed_in_templates_of_templates() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    text(&*sandbox, "mkdir d; echo 1 > d/one; echo 2 > two; echo 3 > three").await;
    commit(&bed, &*sandbox, "one").await;
    sandbox.destroy().await.expect("destroyed");
    let sandbox = from(&bed, "one").await;
    text(&*sandbox, "rm -r d two; mkdir d; echo new > d/new").await;
    commit(&bed, &*sandbox, "two").await;
    sandbox.destroy().await.expect("destroyed");
    let sandbox = from(&bed, "two").await;
    assert_eq!(text(&*sandbox, "ls d; ls; cat three").await, "new\nd\nthree\n3");
    // The layer of the first is used on, and so is not removed with it.
    let provider = bed.provider();
    let templates = provider.require_templates().expect("templates");
    assert!(templates.remove(&id("one")).await.expect("removed"));
    assert_eq!(templates.remove(&id("two")).await.expect_err("in use").kind(), ErrorKind::Conflict);
    let other = from(&bed, "two").await;
    assert_eq!(text(&*other, "cat three d/new").await, "3\nnew");
    for sandbox in [sandbox, other] {
        sandbox.destroy().await.expect("destroyed");
    }
    tidy(&bed, &["two"]).await;
}

#[tokio::test]
async fn programs_of_the_system_that_root_added_come_along() {
    let Some(bed) = Bed::new() else { return };
    if !has_root_inside() {
        println!("skipped: sandboxes of this user have a single user id");
        return;
    }
    let sandbox = create(&bed.provider()).await;
    let script = "sudo sh -c 'mkdir -p /opt/tool && printf \"#!/bin/sh\\necho tool\\n\" > /opt/tool/run && chmod 4755 /opt/tool/run && chown 7:8 /opt/tool'";
    text(&*sandbox, script).await;
    let writes_usr =
        sandbox.commands().run(&Command::shell("sudo cp /opt/tool/run /usr/local/bin/my-tool")).await;
    let writes_usr = writes_usr.expect("it ran").status.is_success();
    commit(&bed, &*sandbox, "tools").await;
    sandbox.destroy().await.expect("destroyed");
    let sandbox = from(&bed, "tools").await;
    assert_eq!(
        text(&*sandbox, "/opt/tool/run; stat -c %a /opt/tool/run; stat -c %u:%g /opt/tool").await,
        "tool\n755\n7:8"
    );
    if writes_usr {
        assert_eq!(text(&*sandbox, "my-tool; stat -c '%a %u' /usr/local/bin/my-tool").await, "tool\n755 0");
    }
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &["tools"]).await;
}

#[tokio::test]
async fn a_writer_stands_still_for_the_copy_and_goes_on() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    // Two files that are the same at every moment in which nothing is being written; between, the first is one ahead.
    let writer = "i=0; while :; do i=$((i+1)); echo $i >> a; echo $i >> b; done";
    text(&*sandbox, &format!("sh -c '{writer}' </dev/null >/dev/null 2>&1 & echo $! > pid")).await;
    let is_begun = async || text(&*sandbox, "test -s b && echo yes || echo no").await == "yes";
    eventually("the writer writes", is_begun).await;
    commit(&bed, &*sandbox, "moment").await;
    let pid = text(&*sandbox, "cat pid").await;
    let now = text(&*sandbox, "wc -l < a").await;
    let grows = async || text(&*sandbox, "wc -l < a").await != now;
    eventually("the writer goes on", grows).await;
    text(&*sandbox, &format!("kill -0 {pid}")).await;
    let copy = from(&bed, "moment").await;
    let lines = text(&*copy, "wc -l < a; wc -l < b").await;
    let counts: Vec<u64> = lines.lines().map(|line| line.trim().parse().expect("a number")).collect();
    assert!(counts[0] == counts[1] || counts[0] == counts[1] + 1, "{counts:?}");
    for sandbox in [sandbox, copy] {
        sandbox.destroy().await.expect("destroyed");
    }
    tidy(&bed, &["moment"]).await;
}

#[tokio::test]
async fn sleepers_and_stopped_ones_are_captured_as_they_are() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    text(&*sandbox, "echo asleep > file").await;
    sandbox.require_pausing().expect("pausing").hibernate().await.expect("asleep");
    commit(&bed, &*sandbox, "sleeper").await;
    let state =
        async || bed.provider().describe(sandbox.id()).await.expect("an answer").expect("a record").state;
    assert_eq!(state().await, State::Sleeping, "nobody woke it");
    sandbox.wake().await.expect("awake");
    text(&*sandbox, "echo stopped > file").await;
    kill(shim_pid(&bed, sandbox.id()).expect("a shim"));
    kill(agent_pid(&bed, sandbox.id()));
    eventually("it is found stopped", async || state().await == State::Stopped).await;
    commit(&bed, &*sandbox, "stopped").await;
    assert_eq!(state().await, State::Stopped);
    assert!(bed.provider().destroy(sandbox.id()).await.expect("destroyed"));
    for (template, content) in [("sleeper", "asleep"), ("stopped", "stopped")] {
        let copy = from(&bed, template).await;
        assert_eq!(text(&*copy, "cat file").await, content);
        copy.destroy().await.expect("destroyed");
    }
    tidy(&bed, &["sleeper", "stopped"]).await;
}

#[tokio::test]
async fn a_capture_path_has_to_be_a_file_of_the_sandbox_own() {
    let Some(bed) = Bed::new() else { return };
    let shared = bed.scratch().join("shared");
    std::fs::create_dir(&shared).expect("a folder");
    std::fs::write(shared.join("file"), "").expect("a file");
    let mount = HostMount { source: shared, target: at("/home/user/data/in"), access: MountAccess::ReadOnly };
    let sandbox =
        bed.provider().create(CreateOptions::new().with_host_mount(mount)).await.expect("a sandbox");
    text(
        &*sandbox,
        "mkdir own; ln -s data/in way; ln -s /proc/self self; ln -s nowhere dangling; ln -s own near",
    )
    .await;
    let provider = bed.provider();
    let templates = provider.require_templates().expect("templates");
    for (path, kind, word) in [
        ("/home/user/data/in", ErrorKind::InvalidInput, "is on what is mounted at `/home/user/data/in`"),
        ("/home/user/data/in/file", ErrorKind::InvalidInput, "is on what is mounted"),
        ("/home/user/way/file", ErrorKind::InvalidInput, "is on what is mounted"),
        ("/home/user/way", ErrorKind::InvalidInput, "is on what is mounted"),
        ("/home/user/data", ErrorKind::InvalidInput, "holds what is mounted"),
        ("/home", ErrorKind::InvalidInput, "holds what is mounted"),
        ("/", ErrorKind::InvalidInput, "holds what is mounted"),
        ("/proc", ErrorKind::InvalidInput, "`/proc`"),
        ("/sys/kernel", ErrorKind::InvalidInput, "`/sys`"),
        ("/dev/null", ErrorKind::InvalidInput, "`/dev`"),
        ("/run/x", ErrorKind::InvalidInput, "`/run`"),
        ("/home/user/self/x", ErrorKind::InvalidInput, "leads to `/proc`"),
        ("/home/user/none", ErrorKind::NotFound, "does not exist"),
    ] {
        let error = templates.commit(options(&*sandbox, "refused", &[path])).await.expect_err(path);
        assert_eq!(error.kind(), kind, "{path}: {error}");
        assert!(error.message().contains(word), "{path}: {error}");
        assert!(templates.get(&id("refused")).await.expect("an answer").is_none());
    }
    templates
        .commit(options(
            &*sandbox,
            "fine",
            &["/home/user/own", "/home/user/near", "/home/user/dangling", "/usr/bin", "/bin/sh"],
        ))
        .await
        .expect("committed");
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &["fine"]).await;
}

#[tokio::test]
async fn the_built_in_template_is_not_replaced() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let provider = bed.provider();
    let templates = provider.require_templates().expect("templates");
    let error = templates.commit(options(&*sandbox, "host", &[])).await.expect_err("built in");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &[]).await;
}

#[tokio::test]
async fn whoever_dies_leaves_the_old_or_the_new_one() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    text(&*sandbox, "for i in $(seq 500); do echo $i > f$i; done; echo old > which").await;
    commit(&bed, &*sandbox, "mine").await;
    text(&*sandbox, "echo new > which").await;
    for round in 0..crate::support::size(6) {
        // The shim, at some moment of a commit.
        let shim = shim_pid(&bed, sandbox.id());
        let provider = bed.provider();
        let templates = provider.require_templates().expect("templates");
        let work = templates.commit(options(&*sandbox, "mine", &[]));
        let (done, ()) = tokio::join!(work, async {
            tokio::time::sleep(std::time::Duration::from_millis(u64::from(round) * 7 % 60)).await;
            shim.into_iter().for_each(kill);
        });
        let copy = from(&bed, "mine").await;
        let which = text(&*copy, "cat which; ls f* | wc -l").await;
        let fine =
            if done.is_ok() { which == "new\n500" } else { which == "old\n500" || which == "new\n500" };
        assert!(fine, "{which} after {done:?}");
        copy.destroy().await.expect("destroyed");
        // It goes on, whoever held it.
        text(&*sandbox, "true").await;
        assert!(bed.stored(sandbox.id())["private"]["pending"].is_null());
    }
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &["mine"]).await;
}

/// Holds it still, as a commit does, as long as the connection is open.
fn hold(bed: &Bed, sandbox: &dyn Sandbox) -> std::os::unix::net::UnixStream {
    use std::io::{BufRead as _, Write as _};
    let socket = bed.folder(sandbox.id()).join("shim.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("a shim");
    stream.write_all(b"{\"v\":4,\"op\":\"hold\"}\n").expect("asked");
    let mut answer = String::new();
    std::io::BufReader::new(&stream).read_line(&mut answer).expect("an answer");
    assert!(answer.contains("held"), "{answer}");
    stream
}

#[tokio::test]
async fn whoever_wants_something_of_a_held_one_waits_a_little_and_is_told_why() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let held = hold(&bed, &*sandbox);
    let (true_, hour) = (Command::new("true"), std::time::Duration::from_secs(3600));
    let (run, slept, set) = tokio::join!(
        sandbox.commands().run(&true_),
        sandbox.require_pausing().expect("pausing").hibernate(),
        sandbox.set_deadline(Deadline::In(hour), DeadlineMode::Set),
    );
    for error in [run.unwrap_err(), slept.unwrap_err(), set.unwrap_err()] {
        assert_eq!((error.kind(), error.state()), (ErrorKind::Conflict, Some(State::Running)), "{error}");
        assert!(error.message().contains("copy"), "{error}");
        assert_eq!(error.retry(), Retry::Safe, "{error}");
    }
    // Who comes while a short one goes on has what was asked for.
    let (run, ()) = tokio::join!(sandbox.commands().run(&true_), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        drop(held);
    });
    assert!(run.expect("it ran").status.is_success());
    // And it is no obstacle to its end.
    let held = hold(&bed, &*sandbox);
    sandbox.destroy().await.expect("destroyed");
    drop(held);
    tidy(&bed, &[]).await;
}

#[tokio::test]
async fn a_sandbox_whose_shim_died_holding_it_goes_on() {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let _stream = hold(&bed, &*sandbox);
    end_shim(&bed, sandbox.id()).await;
    assert_eq!(text(&*sandbox, "echo on").await, "on");
    // And one that is let go by the end of the connection.
    drop(hold(&bed, &*sandbox));
    assert_eq!(text(&*sandbox, "echo on").await, "on");
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed, &[]).await;
}

#[tokio::test]
async fn a_sandbox_that_is_destroyed_meanwhile_makes_no_template() {
    let Some(bed) = Bed::new() else { return };
    for delay in [0, 5, 20] {
        let sandbox = create(&bed.provider()).await;
        text(&*sandbox, "for i in $(seq 300); do echo $i > f$i; done").await;
        let provider = bed.provider();
        let templates = provider.require_templates().expect("templates");
        let (done, destroyed) = tokio::join!(templates.commit(options(&*sandbox, "gone", &[])), async {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            bed.provider().destroy(sandbox.id()).await
        });
        assert!(destroyed.expect("destroyed"));
        let found = templates.get(&id("gone")).await.expect("an answer");
        assert_eq!(done.is_ok(), found.is_some(), "{done:?}");
        if found.is_some() {
            // It was whole by then.
            let copy = from(&bed, "gone").await;
            assert_eq!(text(&*copy, "ls f* | wc -l").await, "300");
            copy.destroy().await.expect("destroyed");
            templates.remove(&id("gone")).await.expect("removed");
        }
    }
    tidy(&bed, &[]).await;
}

#[tokio::test]
async fn an_authority_of_one_sandbox_is_trusted_by_no_other() {
    let Some(bed) = Bed::new() else { return };
    let header = sandbar_core::HeaderInjection::new("x-key", "s3cr3t-value").expect("a header");
    let mut rules = sandbar_core::EgressRules::default();
    let mut rule: sandbar_core::EgressRule = "example.com:443".parse().expect("a rule");
    rule.inject.push(header);
    rules.allow.push(rule);
    let policy = sandbar_core::EgressPolicy::Rules(rules);
    let sandbox = match bed.provider().create(CreateOptions::new().with_egress(policy)).await {
        Ok(sandbox) => sandbox,
        Err(error) => {
            println!("skipped: no gateway on this machine: {error}");
            return;
        }
    };
    assert_eq!(text(&*sandbox, "ls /etc/ssl/certs | grep -c sandbar").await, "1");
    let body = "sed -n 4p /etc/ssl/certs/sandbar-egress.pem";
    let trusted = "cd /etc/ssl/certs; grep -c 'BEGIN CERT' ca-certificates.crt; grep -c 'sandbar-egress begin' ca-certificates.crt; grep -cFx \"$(sed -n 4p sandbar-egress.pem)\" ca-certificates.crt; ls -l | grep -c -- '-> sandbar-egress.pem$'";
    let first = text(&*sandbox, trusted).await;
    assert!(first.ends_with("\n1\n1\n1"), "{first}");
    // Each copy has an authority of its own, also when it is started again.
    let (mut current, mut bodies) = (sandbox, Vec::new());
    for _ in 0..3 {
        bodies.push(text(&*current, body).await);
        let forking = current.require_forking().expect("forking");
        let (copy, _) = forking.fork(sandbar_core::ForkOptions::default()).await.expect("a copy");
        kill(agent_pid(&bed, copy.id()));
        eventually("it is found stopped", async || {
            let record = bed.provider().describe(copy.id()).await.expect("an answer").expect("a record");
            record.state == State::Stopped
        })
        .await;
        copy.require_pausing().expect("pausing").resume().await.expect("it runs");
        assert_eq!(text(&*copy, trusted).await, first);
        for parent in &bodies {
            let script = format!("grep -rhcFx '{parent}' /etc/ssl/certs/ca-certificates.crt || true");
            assert_eq!(text(&*copy, &script).await, "0", "it trusts its parent");
        }
        std::mem::replace(&mut current, copy).destroy().await.expect("destroyed");
    }
    bodies.push(text(&*current, body).await);
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 4, "each has its own");
    commit(&bed, &*current, "trusting").await;
    current.destroy().await.expect("destroyed");
    let copy = from(&bed, "trusting").await;
    let (plain, listed) = (
        create(&bed.provider()).await,
        "sha256sum < /etc/ssl/certs/ca-certificates.crt; ls /etc/ssl/certs | sha256sum; find / -name '*sandbar-egress*' 2>/dev/null | wc -l",
    );
    assert_eq!(text(&*copy, listed).await, text(&*plain, listed).await);
    for sandbox in [copy, plain] {
        sandbox.destroy().await.expect("destroyed");
    }
    let secret = HostCommand::new("grep")
        .args(["-rlF", "s3cr3t-value"])
        .arg(bed.home().join("layers"))
        .stderr(Stdio::null())
        .output();
    assert!(secret.expect("grep").stdout.is_empty());
    tidy(&bed, &["trusting"]).await;
}
