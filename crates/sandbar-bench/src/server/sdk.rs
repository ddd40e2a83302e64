use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as HostCommand, Stdio};
use std::time::{Duration, Instant};

use sandbar::{Command, CreateOptions, EgressPolicy, Lifetime};
use serde_json::Value;

use super::served::Served;
use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const NAME: &str = "server-sdk";
const ROUNDS: usize = 100;
const WARM_UP: usize = 10;
/// Between two rounds, as for the library's own creations.
const REST: Duration = Duration::from_millis(10);
/// The folder with the official package, and the Node.js to run it: `cargo xtask bench` installs both.
const PACKAGES: &str = "SANDBAR_BENCH_SDK";
const NODE: &str = "SANDBAR_BENCH_NODE";
/// Why there is no package.
const WITHOUT: &str = "SANDBAR_BENCH_NO_SDK";
const WHAT: &str = "official JavaScript SDK: `Sandbox.create()` until `commands.run('true')` is done";

/// What most programs do first, by the official SDK and by the library.
pub(crate) fn create_and_run(bed: &Bed) -> Result<Vec<Row>, String> {
    let Some(packages) = std::env::var_os(PACKAGES) else {
        let why = std::env::var(WITHOUT).unwrap_or_else(|_| format!("{PACKAGES} is not set"));
        let peer = Peer::Absent(format!("not measured: {why}"));
        return Ok(vec![Row::new(NAME, WHAT, "ms", Samples::default(), peer, Bar::AtMost(30.0))]);
    };
    let served = Served::start(bed)?;
    let mut sdk = Sdk::start(&served, packages)?;
    let [mut whole, mut create, mut run, mut library] = [(); 4].map(|()| Samples::default());
    for turn in 0..bed.rounds(ROUNDS) + WARM_UP {
        let direct = bed.runtime.block_on(by_library(bed));
        std::thread::sleep(REST);
        let times = sdk.once()?;
        std::thread::sleep(REST);
        if turn < WARM_UP {
            continue;
        }
        match direct {
            Ok(took) => library.took(took, Ok(())),
            Err(why) => library.took(Duration::ZERO, Err::<(), _>(why)),
        }
        let [of_create, of_run] = times;
        whole.value(of_create + of_run, Ok(()));
        create.value(of_create, Ok(()));
        run.value(of_run, Ok(()));
    }
    let peer = Peer::measured("the same through the library, in this process", library);
    let part = |what: &str, samples| Row::new(NAME, what, "ms", samples, Peer::none(), Bar::None);
    Ok(vec![
        Row::new(NAME, WHAT, "ms", whole, peer, Bar::AtMost(30.0)),
        part("of it, `Sandbox.create()`", create),
        part("of it, `commands.run('true')`, in a login shell as the SDK does it", run),
    ])
}

/// The same network and the same login shell.
async fn by_library(bed: &Bed) -> Result<Duration, String> {
    let text = |error: sandbar::Error| error.to_string();
    let begun = Instant::now();
    let options = CreateOptions::new().with_lifetime(Lifetime::Owned).with_egress(EgressPolicy::AllowAll);
    let sandbox = bed.provider.create(options).await.map_err(text)?;
    let command = Command::new("/bin/bash").args(["-l", "-c", "true"]);
    let output = sandbox.commands().run(&command).await.map_err(text)?;
    let took = begun.elapsed();
    sandbox.destroy().await.map_err(text)?;
    if output.status.is_success() { Ok(took) } else { Err(format!("`true`: {:?}", output.status)) }
}

/// The script that uses the SDK: it does it once for each line it is sent.
struct Sdk {
    child: Child,
    ask: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Sdk {
    fn start(served: &Served<'_>, packages: OsString) -> Result<Self, String> {
        let node = std::env::var_os(NODE).unwrap_or_else(|| "node".into());
        let mut command = HostCommand::new(node);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("js/sdk.mjs")).arg(packages);
        command.env_remove("E2B_DOMAIN").env_remove("E2B_DEBUG").envs(served.exports.iter().cloned());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("node: {why}"))?;
        let (ask, told) = (child.stdin.take(), child.stdout.take());
        let (ask, told) = ask.zip(told).ok_or("the script has no pipes")?;
        Ok(Self { child, ask, told: BufReader::new(told) })
    }

    /// Milliseconds of the creation and of the command.
    fn once(&mut self) -> Result<[f64; 2], String> {
        self.ask.write_all(b"once\n").map_err(|why| format!("the script: {why}"))?;
        let mut line = String::new();
        self.told.read_line(&mut line).map_err(|why| format!("the script: {why}"))?;
        let told: Value =
            serde_json::from_str(&line).map_err(|why| format!("the script: `{line}`: {why}"))?;
        match (told["create"].as_f64(), told["run"].as_f64()) {
            (Some(create), Some(run)) => Ok([create, run]),
            _ => Err(format!("the SDK failed: {}", told["why"])),
        }
    }
}

impl Drop for Sdk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
