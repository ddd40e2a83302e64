//! Templates built from steps: what each sees, what is kept of it, and what a failure leaves.

use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{
    BuildCache, BuildLog, BuildSpec, BuildStep, Command, CreateOptions, EnvVars, Error, ErrorKind, GuestPath,
    ProviderExt, Result, Sandbox, SandboxExt, SandboxProvider, Template, TemplateId, UserName,
};

use crate::support::{Bed, eventually};

fn at(path: &str) -> GuestPath {
    GuestPath::new(path).expect("a path")
}

fn id(name: &str) -> TemplateId {
    TemplateId::new(name).expect("an id")
}

fn run(script: &str) -> BuildStep {
    BuildStep::Run(Command::shell(script))
}

/// What a build said and what came of it.
#[derive(Debug, Default)]
struct Said {
    lines: Vec<String>,
    /// Of each step, whether its result was known.
    cached: Vec<bool>,
}

async fn build(bed: &Bed, spec: BuildSpec) -> (Said, Result<Template>) {
    let provider = bed.provider();
    let mut words = match provider.require_builds().expect("builds").build(spec).await {
        Ok(words) => words,
        Err(error) => return (Said::default(), Err(error)),
    };
    let mut said = Said::default();
    while let Some(word) = words.next().await {
        match word {
            Ok(BuildLog::Line(line)) => said.lines.push(line),
            Ok(BuildLog::Step { is_cached, .. }) => said.cached.push(is_cached),
            Ok(BuildLog::Done(template)) => return (said, Ok(template)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (said, Err(error)),
        }
    }
    panic!("the stream ended without a last word: {said:?}");
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

async fn from(bed: &Bed, template: &str) -> std::sync::Arc<dyn Sandbox> {
    bed.provider().create(CreateOptions::new().with_template(id(template))).await.expect("a sandbox")
}

async fn tidy(bed: &Bed) {
    bed.assert_empty("after builds").await;
    let left: Vec<_> = std::fs::read_dir(bed.home().join("layers"))
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A tar with one file.
fn tar_of(name: &str, content: &str) -> bytes::Bytes {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend_from_slice(content.as_bytes());
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar.into()
}

#[tokio::test]
async fn steps_see_what_was_before_them_and_sandboxes_what_came_of_all() {
    let Some(bed) = Bed::new() else { return };
    let steps = vec![
        BuildStep::Env(EnvVars::new().with("MODE", "fast").expect("a variable")),
        BuildStep::Workdir(at("/home/user/app")),
        BuildStep::Copy { tar: tar_of("in.txt", "copied"), to: at("/home/user/app/src") },
        run(
            "pwd; echo $MODE; cat src/in.txt > out; echo; echo err >&2; sleep 1000 </dev/null >/dev/null 2>&1 &",
        ),
        run("cat out; echo; touch done; pgrep -x sleep || echo alone"),
    ];
    let (said, built) = build(&bed, BuildSpec::new(id("app"), steps).with_label("a word")).await;
    let template = built.expect("built");
    assert_eq!((template.id.as_str(), template.label.as_deref()), ("app", Some("a word")));
    for line in ["/home/user/app", "fast", "err", "copied", "alone"] {
        assert!(said.lines.iter().any(|said| said.starts_with(line)), "{line}: {said:?}");
    }
    assert_eq!(said.cached, [false; 5]);
    let sandbox = from(&bed, "app").await;
    let look = "cat /home/user/app/out /home/user/app/src/in.txt; ls /home/user/app; stat -c %U /home/user/app/src/in.txt";
    assert_eq!(text(&*sandbox, look).await, "copiedcopieddone\nout\nsrc\nuser");
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed).await;
}

#[tokio::test]
async fn files_are_copied_right_below_the_root_too() {
    let Some(bed) = Bed::new() else { return };
    if !crate::support::has_root_inside() {
        eprintln!("skipped: with one id nobody in a sandbox may write there");
        return;
    }
    let steps = vec![
        BuildStep::User(UserName::new("root").expect("a name")),
        BuildStep::Copy { tar: tar_of("entry.txt", "copied"), to: at("/") },
        run("cat /entry.txt; echo; ls -A /"),
    ];
    let (said, built) = build(&bed, BuildSpec::new(id("app"), steps)).await;
    built.expect("built");
    assert!(said.lines.iter().any(|line| line == "copied"), "{said:?}");
    assert!(!said.lines.iter().any(|line| line.starts_with(".sandbar")), "{said:?}");
    let sandbox = from(&bed, "app").await;
    assert_eq!(text(&*sandbox, "cat /entry.txt").await, "copied");
    // For others than a build it stays refused.
    let tar = futures::stream::iter([Ok(tar_of("x", "x"))]);
    let refused = sandbox.require_archive().expect("archives").import(&at("/"), Box::pin(tar)).await;
    assert_eq!(refused.expect_err("refused").kind(), sandbar_core::ErrorKind::InvalidInput);
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed).await;
}

#[tokio::test]
async fn what_is_known_is_not_done_again_and_what_changed_is() {
    let Some(bed) = Bed::new() else { return };
    let spec = |content: &str, last: &str| {
        let copy = BuildStep::Copy { tar: tar_of("f", content), to: at("/home/user") };
        BuildSpec::new(id("cached"), vec![run("date +%s%N > stamp"), copy, run(last)])
    };
    let stamp = async || {
        let sandbox = from(&bed, "cached").await;
        let stamp = text(&*sandbox, "cat stamp f last").await;
        sandbox.destroy().await.expect("destroyed");
        stamp
    };
    let (said, built) = build(&bed, spec("one", "echo > last")).await;
    built.expect("built");
    assert_eq!(said.cached, [false, false, false]);
    let first = stamp().await;
    let (said, built) = build(&bed, spec("one", "echo > last")).await;
    built.expect("built");
    assert_eq!(said.cached, [true, true, true]);
    assert_eq!(stamp().await, first);
    let (said, built) = build(&bed, spec("one", "echo other > last")).await;
    built.expect("built");
    assert_eq!(said.cached, [true, true, false]);
    let (said, built) = build(&bed, spec("two", "echo other > last")).await;
    built.expect("built");
    assert_eq!(said.cached, [true, false, false], "what comes after a change is done again");
    // Its layers are in use as long as the cache names them, whoever else does.
    let provider = bed.provider();
    provider.require_templates().expect("templates").remove(&id("cached")).await.expect("removed");
    let (said, built) = build(&bed, spec("one", "echo > last")).await;
    built.expect("built");
    assert_eq!(said.cached, [true, true, true]);
    assert_eq!(stamp().await, first);
    let (said, built) = build(&bed, spec("one", "echo > last").with_cache(BuildCache::Ignore)).await;
    built.expect("built");
    assert_eq!(said.cached, [false, false, false]);
    assert_ne!(stamp().await, first);
    tidy(&bed).await;
}

fn refusal(built: Result<Template>) -> Error {
    built.expect_err("no template")
}

#[tokio::test]
async fn a_step_that_fails_says_which_and_how_and_leaves_the_template_as_it_was() {
    let Some(bed) = Bed::new() else { return };
    build(&bed, BuildSpec::new(id("t"), vec![run("echo old > which")])).await.1.expect("built");
    let failing = vec![run("echo new > which"), run("echo first; echo last words >&2; exit 7"), run("true")];
    let (said, built) = build(&bed, BuildSpec::new(id("t"), failing)).await;
    let error = refusal(built);
    for word in ["step 2 of 3", "exit 7", "exit code 7", "last words"] {
        assert!(error.message().contains(word), "{word}: {error}");
    }
    assert_eq!(said.cached, [false, false], "the third is not done: {said:?}");
    let slow = BuildSpec::new(id("t"), vec![run("echo begun; sleep 1000")])
        .with_step_timeout(Duration::from_secs(1));
    let error = refusal(build(&bed, slow).await.1);
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.message().contains("step 1 of 1") && error.message().contains("begun"), "{error}");
    let reaching = run("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 443), 5)'");
    assert!(
        refusal(build(&bed, BuildSpec::new(id("t"), vec![reaching])).await.1).message().contains("step 1")
    );
    let nowhere = vec![BuildStep::Copy { tar: tar_of("f", "x"), to: at("/etc/passwd/below") }];
    assert!(refusal(build(&bed, BuildSpec::new(id("t"), nowhere)).await.1).message().contains("step 1 of 1"));
    let sandbox = from(&bed, "t").await;
    assert_eq!(text(&*sandbox, "cat which").await, "old");
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed).await;
}

#[tokio::test]
async fn what_can_not_be_built_is_refused_before_the_first_step() {
    let Some(bed) = Bed::new() else { return };
    for (spec, kind) in [
        (BuildSpec::new(id("t"), Vec::new()), ErrorKind::InvalidInput),
        (BuildSpec::new(id("t"), vec![run("true"); 257]), ErrorKind::InvalidInput),
        (BuildSpec::new(id("t"), vec![run("true")]).with_scope(""), ErrorKind::InvalidInput),
        (BuildSpec::new(id("t"), vec![run("true")]).with_scope("s".repeat(129)), ErrorKind::InvalidInput),
        (BuildSpec::new(id("host"), vec![run("true")]), ErrorKind::InvalidInput),
        (BuildSpec::new(id("t"), vec![run("true")]).with_base(id("none")), ErrorKind::NotFound),
        (
            BuildSpec::new(id("t"), vec![BuildStep::CopyFile { tar: "/no/such.tar".into(), to: at("/a") }]),
            ErrorKind::NotFound,
        ),
        (
            BuildSpec::new(id("t"), vec![run("true")]).with_step_timeout(Duration::ZERO),
            ErrorKind::InvalidInput,
        ),
    ] {
        let (said, built) = build(&bed, spec).await;
        assert!(said.cached.is_empty());
        assert_eq!(refusal(built).kind(), kind);
    }
    tidy(&bed).await;
}

#[tokio::test]
async fn a_base_is_built_on_and_settings_alone_make_a_template() {
    let Some(bed) = Bed::new() else { return };
    build(&bed, BuildSpec::new(id("base"), vec![run("echo 1 > one")])).await.1.expect("built");
    let steps =
        vec![run("cat one > two"), BuildStep::Env(EnvVars::new().with("A", "b").expect("a variable"))];
    build(&bed, BuildSpec::new(id("over"), steps).with_base(id("base"))).await.1.expect("built");
    let provider = bed.provider();
    provider.require_templates().expect("templates").remove(&id("base")).await.expect("removed");
    let sandbox = from(&bed, "over").await;
    assert_eq!(text(&*sandbox, "cat one two").await, "1\n1");
    sandbox.destroy().await.expect("destroyed");
    let only =
        BuildSpec::new(id("only"), vec![BuildStep::Env(EnvVars::new().with("A", "b").expect("a variable"))]);
    build(&bed, only).await.1.expect("built");
    from(&bed, "only").await.destroy().await.expect("destroyed");
    tidy(&bed).await;
}

/// Whoever has none of a scope can't tell by what a copy costs whether somebody else has copied the same.
#[tokio::test]
async fn scopes_share_no_layer_of_the_same_files() {
    let Some(bed) = Bed::new() else { return };
    let layers = || {
        let names = std::fs::read_dir(bed.home().join("layers")).expect("layers").flatten();
        names.filter(|entry| entry.path().join("root").is_dir()).count()
    };
    let mut counts = Vec::new();
    for (name, scope) in [("a", "one"), ("b", "other"), ("c", "one")] {
        let copy = BuildStep::Copy { tar: tar_of("f", "the same"), to: at("/home/user") };
        let spec = BuildSpec::new(id(name), vec![copy]).with_scope(scope).with_cache(BuildCache::Ignore);
        build(&bed, spec).await.1.expect("built");
        counts.push(layers());
    }
    assert_eq!(counts, [1, 2, 2], "one for each scope");
    tidy(&bed).await;
}

#[tokio::test]
async fn many_steps_make_few_layers() {
    let Some(bed) = Bed::new() else { return };
    let steps: Vec<_> =
        (0..24).map(|number| run(&format!("echo {number} > f{number}; rm -f f{}", number - 2))).collect();
    build(&bed, BuildSpec::new(id("many"), steps.clone())).await.1.expect("built");
    let (said, built) = build(&bed, BuildSpec::new(id("many"), steps)).await;
    built.expect("built");
    assert!(said.cached.iter().all(|cached| *cached), "{said:?}");
    let sandbox = from(&bed, "many").await;
    assert_eq!(text(&*sandbox, "cat f*; ls | wc -l").await, "22\n23\n2");
    sandbox.destroy().await.expect("destroyed");
    tidy(&bed).await;
}

#[tokio::test]
async fn a_build_that_nobody_waits_for_ends() {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let spec = BuildSpec::new(id("t"), vec![run("echo begun; sleep 1000")]);
    let mut words = provider.require_builds().expect("builds").build(spec).await.expect("a build");
    while let Some(Ok(word)) = words.next().await {
        if matches!(&word, BuildLog::Line(line) if line == "begun") {
            break;
        }
    }
    drop(words);
    let gone = async || {
        let listed = bed.provider().list_all(sandbar_core::Query::new()).await.expect("a listing");
        listed.is_empty()
    };
    eventually("its sandbox is gone", gone).await;
    assert!(
        provider.require_templates().expect("templates").get(&id("t")).await.expect("an answer").is_none()
    );
    tidy(&bed).await;
}
