use std::collections::BTreeSet;
use std::process::{Command as HostCommand, Stdio};
use std::time::Duration;

use futures::future::join_all;
use sandbar_core::{Command, CreateOptions, EnvVars, ErrorKind, ProviderExt, Query, SandboxProvider};

use crate::support::{Bed, Traces, agent_pid, create, descendants, eventually, kill};

/// A small generator of its own, so that a run can be repeated by its seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let mut seed = [0; 8];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).expect("random numbers");
        let seed = u64::from_le_bytes(seed) | 1;
        println!("seed: {seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What this process has open and what the machine has mounted: has to be the same before and after.
fn footprint() -> (usize, usize) {
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts").lines().count();
    (open, mounts)
}

/// Set in the process that has only this test: descriptors of others would be counted too.
const ALONE: &str = "SANDBAR_TEST_ALONE";

pub(crate) async fn cycles(count: u32) {
    if std::env::var_os(ALONE).is_none() {
        let status = HostCommand::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "--nocapture", "cycles_leave_nothing"])
            .env(ALONE, "1")
            .status()
            .expect("started");
        return assert!(status.success(), "on its own: {status}");
    }
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let mut before = None;
    for round in 0..count {
        let sandbox = create(&provider).await;
        let id = sandbox.id().clone();
        let output =
            sandbox.commands().run(&Command::new("echo").arg(round.to_string())).await.expect("an output");
        assert_eq!(output.stdout_lossy(), format!("{round}\n"));
        let agent = agent_pid(&bed, &id);
        assert!(sandbox.destroy().await.expect("destroyed"));
        assert!(!crate::support::is_alive(agent), "round {round}: its agent lives");
        assert_eq!(Traces::groups_of(&id), Vec::<std::path::PathBuf>::new(), "round {round}");
        let traces = Traces::of(&bed.home());
        assert!(traces.is_empty(), "round {round}: {traces:#?}");
        drop(sandbox);
        // After the first rounds everything that is made once is there.
        if round == 4 {
            tokio::task::yield_now().await;
            before = Some(footprint());
        }
    }
    if let Some(before) = before {
        let after = footprint();
        assert!(after.0 <= before.0 + 2, "descriptors: {} before, {} after", before.0, after.0);
        assert_eq!(after.1, before.1, "mounts");
    }
    bed.assert_empty("after the cycles").await;
}

pub(crate) async fn kills(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let mut random = Random::new();
    let helper = helper();
    // Builds the template, so that the moments are those of a creation.
    let provider = bed.provider();
    create(&provider).await.destroy().await.expect("destroyed");
    for round in 0..count {
        let victim = ["caller", "shim", "agent"][usize::try_from(round % 3).expect("a small number")];
        let args: &[&str] = if random.below(2) == 0 { &["create"] } else { &["run", "--", "sleep", "60"] };
        let mut caller = HostCommand::new(&helper)
            .args(args)
            .env("SANDBAR_HOME", bed.home())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command line starts");
        let pid = i32::try_from(caller.id()).expect("a process number");
        tokio::time::sleep(Duration::from_micros(random.below(40_000))).await;
        match victim {
            "caller" => kill(pid),
            "shim" => descendants(pid).first().copied().into_iter().for_each(kill),
            _ => descendants(pid).get(1).copied().into_iter().for_each(kill),
        }
        // One that was not hit runs on; its turn is over all the same.
        tokio::time::sleep(Duration::from_micros(random.below(20_000))).await;
        kill(pid);
        caller.wait().expect("its end");

        let when = format!("round {round}, {victim} of `{}`", args[0]);
        let listed =
            provider.list_all(Query::new()).await.unwrap_or_else(|error| panic!("{when}: list: {error:?}"));
        for record in listed {
            let destroyed = provider.destroy(&record.id).await;
            destroyed.unwrap_or_else(|error| panic!("{when}: destroy {}: {error:?}", record.id));
        }
        // The next commands that write remove what is left.
        create(&provider).await.destroy().await.unwrap_or_else(|error| panic!("{when}: {error:?}"));
        // One that was half made at the time of the listing may be on its way out still.
        let nothing = async || provider.list_all(Query::new()).await.is_ok_and(|listed| listed.is_empty());
        eventually(&format!("{when}: nothing is listed"), nothing).await;
        bed.assert_empty(&when).await;
    }
}

pub(crate) async fn parallel(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let made = join_all((0..count).map(|number| {
        let provider = provider.clone();
        async move {
            let env = EnvVars::new().with("NUMBER", number.to_string()).expect("a variable");
            let sandbox = provider.create(CreateOptions::new().with_env(env)).await?;
            let script = "echo $NUMBER > mine; sleep 0.1; cat mine; ls | wc -l; env | grep -c ^NUMBER=";
            let output = sandbox.commands().run(&Command::shell(script)).await?;
            assert_eq!(output.stdout_lossy(), format!("{number}\n1\n1\n"), "another's files or environment");
            Ok::<_, sandbar_core::Error>(sandbox)
        }
    }))
    .await;
    let mut ranges = BTreeSet::new();
    let mut ids = BTreeSet::new();
    let mut refused = 0;
    for made in made {
        let sandbox = match made {
            Ok(sandbox) => sandbox,
            Err(error) if error.kind() == ErrorKind::LimitExceeded => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        let stored = bed.stored(sandbox.id());
        if let Some(slot) = stored["private"]["slot"].as_u64() {
            assert!(ranges.insert(slot), "two sandboxes have range {slot}");
        }
        ids.insert(sandbox.id().clone());
    }
    println!("{} made, {refused} refused", ids.len());
    assert!(!ids.is_empty());
    let listed: BTreeSet<_> = provider
        .list_all(Query::new())
        .await
        .expect("a listing")
        .into_iter()
        .map(|record| record.id)
        .collect();
    assert_eq!(listed, ids, "each is listed once");
    let destroyed = join_all(ids.iter().map(|id| provider.destroy(id))).await;
    for outcome in destroyed {
        assert!(outcome.expect("destroyed"));
    }
    for id in &ids {
        assert_eq!(Traces::groups_of(id), Vec::<std::path::PathBuf>::new());
    }
    bed.assert_empty("after all").await;
}

/// Makes so many, one after the other, and lets them be: each is listed, each answers, none is left.
pub(crate) async fn idle(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let mut made = Vec::new();
    for _ in 0..count {
        made.push(create(&provider).await);
    }
    let listed = provider.list_all(Query::new()).await.expect("a listing");
    assert_eq!(listed.len(), made.len());
    assert!(listed.iter().all(|record| record.state == sandbar_core::State::Running), "{listed:?}");
    for sandbox in &made {
        let output = sandbox.commands().run(&Command::new("true")).await.expect("an output");
        assert!(output.status.is_success());
    }
    for sandbox in &made {
        assert!(sandbox.destroy().await.expect("destroyed"));
    }
    bed.assert_empty("after all").await;
}

/// The command line, as the provider would find it.
pub(crate) fn helper() -> std::path::PathBuf {
    if let Some(named) = std::env::var_os("SANDBAR_HELPER") {
        return named.into();
    }
    let current = std::env::current_exe().expect("this test's own path");
    let helper = current.ancestors().nth(2).expect("the target folder").join("sandbar");
    assert!(helper.exists(), "`{}` is not there: run `cargo build -p sandbar-cli` first", helper.display());
    helper
}
