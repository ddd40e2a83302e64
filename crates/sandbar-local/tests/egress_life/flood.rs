//! A sandbox that takes all it can get of its gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar_core::{Destination, Protocol, ProviderExt, Sandbox, SandboxExt, SandboxId};

use crate::support::{Scene, Tries, helper, scene};

/// How long the other sandbox is watched.
const WATCHED: Duration = Duration::from_secs(8);
/// How long one connection of the other sandbox may take, with the start of its program, on a machine that is busy with the flood.
const PROMPT: Duration = Duration::from_secs(5);
/// The bound of both files of decisions together, as their module has it.
const LOGS: u64 = 2 * (4 << 20) + (1 << 20);
/// The shim's own log: some lines at most.
const SHIM_LOG: u64 = 16 << 10;

/// Connections that are held, and new ones all the time; names by the thousand; datagrams to everywhere; logs that want to be written.
const FLOOD: &str = "name, raw = sys.argv[1], sys.argv[2]
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
known = address(name)
held = []
def connections():
    while True:
        try:
            s = socket.socket(); s.setblocking(False); s.connect_ex((known, 8000)); held.append(s)
        except OSError:
            for s in held[:500]: s.close()
            del held[:500]
        if len(held) % 50 == 0: time.sleep(0.001)
def refused():
    while True:
        with socket.socket() as s:
            s.settimeout(0.2)
            try: s.connect((raw, 8000 + int(time.time() * 1000) % 5)); s.send(b'x')
            except OSError: pass
def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    n = 0
    while True:
        n += 1
        label = f'x{n}'.encode()
        try: s.sendto(n.to_bytes(4, 'big')[2:] + b'\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0' + bytes([len(label)]) + label + b'\\4wild\\4test\\0\\0\\1\\0\\1', ('198.18.0.1', 53))
        except OSError: pass
        if n % 200 == 0: time.sleep(0.001)
def datagrams():
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try: s.sendto(b'x', (known, 9999))
            except OSError: pass
for work in [connections, refused, names, datagrams]: threading.Thread(target=work, daemon=True).start()
print('begun', flush=True)
time.sleep(600)";

#[test]
fn it_takes_nothing_from_another_and_not_its_own_shim() {
    scene("flood::it_takes_nothing_from_another_and_not_its_own_shim", async |scene| {
        flooded(scene, None).await;
    });
}

/// Linux' own limits are far above; those of a container may be as low.
#[test]
fn not_even_where_few_files_may_be_open() {
    scene("flood::not_even_where_few_files_may_be_open", async |scene| flooded(scene, Some(256)).await);
}

async fn flooded(scene: &Scene, files: Option<u32>) {
    let ((name, _), (quiet, _), raw) =
        (scene.rig.host("flooded"), scene.rig.host("quiet"), scene.rig.address());
    let raw_text = raw.v4.to_string();
    let rules = [
        format!("{name}:8000"),
        format!("{name}:9999/udp"),
        format!("{raw_text}:8001"),
        "*.wild.test".to_owned(),
    ];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    let flooding = match files {
        Some(files) => limited(scene, files, &rules).await,
        None => scene.allowing(&rules).await,
    };
    let other = scene.allowing(&[&quiet]).await;
    let mut flood = flooding.begin(FLOOD, &[&name, &raw_text]).await;
    assert_eq!(flood.line(PROMPT).await.as_deref(), Some("begun"));
    let end = Instant::now() + WATCHED;
    let (mut rounds, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let begun = Instant::now();
        assert_eq!(other.get(&quiet, 80).await, "200", "round {rounds}");
        slowest = slowest.max(begun.elapsed());
        assert!(begun.elapsed() < PROMPT, "the other one took {:?}", begun.elapsed());
        let begun = Instant::now();
        let network = flooding.require_network().expect("a network");
        let quiet = Destination::Name(quiet.parse().expect("a name"));
        network.explain(quiet, 80, Protocol::Tcp).await.expect("an answer");
        scene.described(&*flooding).await;
        network.counters().await.expect("counters");
        assert!(begun.elapsed() < PROMPT, "its own shim took {:?}", begun.elapsed());
        rounds += 1;
    }
    println!("{rounds} rounds, the slowest {slowest:?}");
    let counters = flooding.require_network().expect("a network").counters().await.expect("counters");
    println!("{counters:?}");
    // It did flood: both kinds of limits were met.
    assert!(counters.denied > 1000 && counters.questions > 1000, "{counters:?}");
    let (logs, shim) = sizes(scene, &flooding);
    println!("logs {logs}, shim's {shim}");
    assert!(logs <= LOGS && shim <= SHIM_LOG, "{logs} and {shim}");
    let begun = Instant::now();
    flooding.destroy().await.expect("destroyed");
    assert!(begun.elapsed() < PROMPT * 3, "its end took {:?}", begun.elapsed());
    assert_eq!(other.get(&quiet, 80).await, "200", "afterwards");
}

/// A sandbox whose shim may open so many files.
async fn limited(scene: &Scene, files: u32, rules: &[&str]) -> Arc<dyn Sandbox> {
    let mut create = std::process::Command::new("prlimit");
    create
        .arg(format!("--nofile={files}:{files}"))
        .arg(helper())
        .arg("create")
        .env("SANDBAR_HOME", scene.home());
    for rule in rules {
        let is_range = rule.starts_with(|first: char| first.is_ascii_digit());
        create.args([if is_range { "--allow-cidr" } else { "--allow" }, rule]);
    }
    let output = create.output().expect("prlimit starts");
    assert!(output.status.success(), "{output:?}");
    let id = SandboxId::new(String::from_utf8_lossy(&output.stdout).trim()).expect("an id");
    scene.provider().require(&id).await.expect("a sandbox")
}

fn sizes(scene: &Scene, sandbox: &Arc<dyn Sandbox>) -> (u64, u64) {
    let folder = scene.folder(sandbox.id());
    let size = |file: &str| std::fs::metadata(folder.join(file)).map_or(0, |meta| meta.len());
    (size("egress.jsonl") + size("egress.jsonl.1"), size("shim.log"))
}
