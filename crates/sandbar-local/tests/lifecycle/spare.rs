//! The sandbox that is made ready in advance: nobody sees it, it becomes the next one, and it leaves nothing.

use sandbar_core::{
    Command, CreateOptions, EnvVars, ProviderExt, Query, Resources, SandboxId, SandboxProvider,
};
use sandbar_local::{LocalProvider, Spare};

use crate::support::{Bed, Traces, create, descendants, eventually, is_alive, kill, shim_pid};

fn keeping(bed: &Bed) -> LocalProvider {
    LocalProvider::open(bed.config().with_spare(Spare::Kept)).expect("the provider opens")
}

/// The folders of sandboxes that have no record.
fn without_record(bed: &Bed) -> Vec<SandboxId> {
    let entries =
        std::fs::read_dir(bed.home().join("sandboxes")).into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| !entry.path().join("record.json").exists())
        .filter_map(|entry| SandboxId::new(entry.file_name().to_string_lossy()).ok())
        .collect()
}

/// Makes two, whereupon a third is prepared; answers its id and the process of its agent.
pub(crate) async fn prepared(bed: &Bed, provider: &LocalProvider) -> (SandboxId, i32) {
    for _ in 0..2 {
        create(provider).await.destroy().await.expect("destroyed");
    }
    let mut found = None;
    eventually("a spare is ready", async || {
        let spare = without_record(bed).into_iter().find_map(|id| {
            let agent = descendants(shim_pid(bed, &id)?).first().copied()?;
            let executes =
                std::fs::read(format!("/proc/{agent}/cmdline")).is_ok_and(|line| line == b"sandbar-agent\0");
            executes.then_some((id, agent))
        });
        found = spare;
        found.is_some()
    })
    .await;
    found.expect("just found")
}

async fn nothing_is_left(bed: &Bed, id: &SandboxId) {
    bed.assert_empty("after the spare").await;
    assert_eq!(Traces::groups_of(id), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn nobody_sees_it_and_it_becomes_the_next_one() {
    let Some(bed) = Bed::new() else { return };
    let provider = keeping(&bed);
    let (spare, _) = prepared(&bed, &provider).await;
    let other = bed.provider();
    assert!(other.list_all(Query::new()).await.expect("a listing").is_empty());
    assert!(other.describe(&spare).await.expect("a look").is_none());
    assert!(other.get(&spare).await.expect("a look").is_none());
    // Nor does somebody else's tidying take it for wreckage.
    create(&other).await.destroy().await.expect("destroyed");

    let env = EnvVars::new().with("NUMBER", "7").expect("a variable");
    let sandbox = provider.create(CreateOptions::new().with_env(env)).await.expect("a sandbox");
    assert_eq!(sandbox.id(), &spare);
    let script = "echo $NUMBER; hostname; whoami; stat -c %U ~; echo kept > ~/file; cat ~/file";
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("an output");
    let expected = format!("7\n{spare}\nuser\nuser\nkept\n");
    assert_eq!(output.stdout_lossy(), expected, "{}", String::from_utf8_lossy(&output.stderr));
    let record = sandbox.record().await.expect("a record");
    assert!(record.created_at.is_some() && record.started_at >= record.created_at, "{record:?}");
    assert!(record.deadline > record.started_at, "{record:?}");
    assert!(sandbox.destroy().await.expect("destroyed"));
    drop((sandbox, provider));
    nothing_is_left(&bed, &spare).await;
}

#[tokio::test]
async fn what_is_of_another_shape_is_made_anew() {
    let Some(bed) = Bed::new() else { return };
    let provider = keeping(&bed);
    let (spare, agent) = prepared(&bed, &provider).await;
    let options = CreateOptions::new().with_resources(Resources::default().with_pids(77));
    let sandbox = provider.create(options).await.expect("a sandbox");
    assert_ne!(sandbox.id(), &spare);
    let limit = sandbox.record().await.expect("a record").limits["pids"].value;
    assert_eq!(limit, Some(77));
    eventually("the spare is gone", async || !is_alive(agent)).await;
    sandbox.destroy().await.expect("destroyed");
    drop((sandbox, provider));
    nothing_is_left(&bed, &spare).await;
}

#[tokio::test]
async fn it_ends_with_its_maker() {
    let Some(bed) = Bed::new() else { return };
    let provider = keeping(&bed);
    let (spare, agent) = prepared(&bed, &provider).await;
    drop(provider);
    eventually("the agent ends", async || !is_alive(agent)).await;
    nothing_is_left(&bed, &spare).await;
}

#[tokio::test]
async fn killed_it_takes_its_agent_along_and_the_next_command_removes_it() {
    let Some(bed) = Bed::new() else { return };
    let provider = keeping(&bed);
    let (spare, agent) = prepared(&bed, &provider).await;
    kill(shim_pid(&bed, &spare).expect("its shim"));
    eventually("the agent ends by itself", async || !is_alive(agent)).await;
    assert!(provider.list_all(Query::new()).await.expect("a listing").is_empty());
    let sandbox = create(&provider).await;
    assert_ne!(sandbox.id(), &spare);
    let output = sandbox.commands().run(&Command::new("true")).await.expect("an output");
    assert!(output.status.is_success());
    sandbox.destroy().await.expect("destroyed");
    drop((sandbox, provider));
    nothing_is_left(&bed, &spare).await;
}

#[tokio::test]
async fn one_whose_agent_died_is_not_used() {
    let Some(bed) = Bed::new() else { return };
    let provider = keeping(&bed);
    let (spare, agent) = prepared(&bed, &provider).await;
    kill(agent);
    eventually("the agent is dead", async || !is_alive(agent)).await;
    let sandbox = create(&provider).await;
    assert_ne!(sandbox.id(), &spare);
    sandbox.destroy().await.expect("destroyed");
    drop((sandbox, provider));
    nothing_is_left(&bed, &spare).await;
}

#[tokio::test]
async fn switched_off_there_is_none() {
    let Some(bed) = Bed::new() else { return };
    let provider = LocalProvider::open(bed.config().with_spare(Spare::None)).expect("the provider opens");
    for _ in 0..4 {
        create(&provider).await.destroy().await.expect("destroyed");
    }
    // A spare's shim is started before `create` answers, or in the next moment of this runtime.
    tokio::task::yield_now().await;
    assert_eq!(without_record(&bed), []);
    bed.assert_empty("with the provider still there").await;
}
