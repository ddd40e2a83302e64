//! What happens while it runs.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use sandbar_core::{
    Command, CreateOptions, EgressPolicy, ForkOptions, GatewayState, MainCommand, SandboxProvider,
};
use sandbar_rig::Rig;

use crate::bed::{Bed, Inside, allow, eventually, in_rig, size, users};

/// A download that would last for minutes: its start is waited for outside, its end by the caller.
fn download(sandbox: &Inside, host: &str) -> tokio::task::JoinHandle<(i32, String)> {
    let (sandbox, url) = (sandbox.clone(), format!("https://{host}/drip?count=6000&ms=20"));
    tokio::spawn(async move {
        let output = sandbox
            .sh(&format!("curl -sSkN --max-time 100 '{url}' 2>&1 | tail -n 3; exit ${{PIPESTATUS:-0}}"))
            .await;
        (output.status.to_code(), output.stdout_lossy().into_owned())
    })
}

async fn begun(rig: &Rig, host: &str) {
    eventually("the download is outside", async || (!rig.requests(host).is_empty()).then_some(())).await;
}

#[test]
fn a_policy_change_cuts_what_it_no_longer_allows() {
    in_rig("state::a_policy_change_cuts_what_it_no_longer_allows", async || {
        let rig = Rig::connect();
        let ((first, address), (second, _)) = (rig.host("first"), rig.host("second"));
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow([&*first])).await;
        sandbox.refused(&format!("https://{second}/")).await;
        let running = download(&sandbox, &first);
        begun(&rig, &first).await;
        let network = sandbox.0.network().expect("a network");
        let changed = Instant::now();
        network.set_policy(allow([&*second])).await.expect("another policy");
        let (_, text) =
            tokio::time::timeout(Duration::from_secs(5), running).await.expect("it was cut").unwrap();
        assert!(text.contains("curl:"), "it ended by itself: {text}");
        assert!(changed.elapsed() < Duration::from_secs(5));
        eventually("the far side sees the end", async || {
            rig.connections(address.v4).iter().all(|seen| seen.ended).then_some(())
        })
        .await;
        let before = rig.arrivals(address.v4).len();
        sandbox.refused(&format!("https://{first}/")).await;
        sandbox.fetched(&format!("https://{second}/")).await;
        assert_eq!(rig.arrivals(address.v4).len(), before);
        network.set_policy(EgressPolicy::DenyAll).await.expect("another policy");
        sandbox.refused(&format!("https://{second}/")).await;
        sandbox.destroy().await;
    });
}

/// Tries for ever, from inside: an allowed host, and the gateway's own places. A line for each that it got.
const GRABBER: &str = r#"
import socket, ssl, sys, time
name = sys.argv[1]
log = open("/tmp/grabbed", "a", buffering=1)
log.write("ready\n")
context = ssl._create_unverified_context()
while True:
    for port, kind in [(15001, socket.SOCK_STREAM), (53, socket.SOCK_STREAM), (53, socket.SOCK_DGRAM)]:
        s = socket.socket(socket.AF_INET, kind)
        try:
            s.bind(("198.18.0.1", port)); log.write("bound %d\n" % port)
        except OSError: pass
        s.close()
    try:
        with socket.create_connection((name, 443), 0.5) as s, context.wrap_socket(s, server_hostname=name) as t:
            t.sendall(b"GET /grabbed HTTP/1.0\r\nHost: " + name.encode() + b"\r\n\r\n")
            t.recv(1)
    except OSError: pass
    time.sleep(0.02)
"#;

#[test]
fn a_dead_gateway_is_no_network() {
    in_rig("state::a_dead_gateway_is_no_network", async || {
        let rig = Rig::connect();
        let (name, address) = rig.host("allowed");
        let bed = Bed::new();
        // It works whoever looks, so that what it does needs no command, which would bring the gateway back.
        let main = MainCommand::new(Command::new("python3").args(["-c", GRABBER, &name]));
        let sandbox =
            bed.sandbox_with(CreateOptions::new().with_egress(allow([&*name])).with_main(main)).await;
        let id = sandbox.0.id().clone();
        begun(&rig, &name).await;
        let running = download(&sandbox, &name);
        eventually("the download is outside", async || {
            rig.requests(&name).iter().any(|request| request.path == "/drip").then_some(())
        })
        .await;
        // Whoever waits for its command would bring a new gateway.
        running.abort();
        assert!(running.await.is_err_and(|error| error.is_cancelled()), "the download was cut short here");
        kill_shim(&bed, &id).await;
        let record = bed.provider.describe(&id).await.unwrap().expect("a record");
        assert_eq!(record.egress.gateway, Some(GatewayState::Down));
        // What was on its way when the gateway died is outside by now: both its connections have ended there.
        eventually("the far side sees the end", async || {
            rig.connections(address.v4).iter().all(|seen| seen.ended).then_some(())
        })
        .await;
        let mark = rig.mark();
        // A silence has no other sign than that it lasts.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let arrived = rig.arrivals_since(mark, Some(address.v4.into()));
        assert!(arrived.is_empty(), "with no gateway: {arrived:#?}");
        let record = bed.provider.describe(&id).await.unwrap().expect("a record");
        assert_eq!(record.egress.gateway, Some(GatewayState::Down), "nobody brought one back meanwhile");
        // The next command brings one back, which serves the same sandbox.
        sandbox.fetched(&format!("https://{name}/again")).await;
        let record = bed.provider.describe(&id).await.unwrap().expect("a record");
        assert_eq!(record.egress.gateway, Some(GatewayState::Serving));
        let grabbed = sandbox.sh("cat /tmp/grabbed").await.stdout_lossy().into_owned();
        assert!(grabbed.contains("ready") && !grabbed.contains("bound"), "{grabbed}");
        sandbox.destroy().await;
    });
}

/// Tries for ever, from inside, what is denied: an address by its number and a name, below what the resolver takes a second. A line for each try that got somewhere.
const STRAINER: &str = r#"
import socket, sys, time
name, address = sys.argv[1:]
log = open("/tmp/strained", "a", buffering=1)
log.write("ready\n")
while True:
    for host in [address, name]:
        try:
            socket.create_connection((host, 443), 0.2).close()
            log.write("reached %s\n" % host)
        except OSError: pass
    time.sleep(0.01)
"#;

#[test]
fn nothing_gets_out_right_after_it_wakes() {
    in_rig("state::nothing_gets_out_right_after_it_wakes", async || {
        let rig = Rig::connect();
        let ((name, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let bed = Bed::new();
        let main = MainCommand::new(Command::new("python3").args([
            "-c",
            STRAINER,
            &denied,
            &address.v4.to_string(),
        ]));
        let sandbox =
            bed.sandbox_with(CreateOptions::new().with_egress(allow([&*name])).with_main(main)).await;
        let id = sandbox.0.id().clone();
        for round in 0..size(6) {
            let pausing = sandbox.0.pausing().expect("it can sleep");
            assert!(pausing.hibernate().await.expect("asleep").processes_preserved);
            // Woken by the shim that put it to sleep, and by one that finds it asleep.
            if round % 2 == 1 {
                kill_shim(&bed, &id).await;
            }
            assert!(pausing.resume().await.expect("awake").processes_preserved);
            sandbox.fetched(&format!("https://{name}/awake")).await;
        }
        assert_eq!(sandbox.sh("cat /tmp/strained").await.stdout_lossy(), "ready\n");
        assert!(rig.arrivals(address.v4).is_empty() && rig.queries(&denied).is_empty());
        sandbox.destroy().await;
        bed.assert_empty();
    });
}

/// Tries for half a second, from the first moment on, what is denied.
fn strain(denied: &str, address: std::net::Ipv4Addr) -> String {
    format!(
        "python3 -c \"import socket, time\nend = time.time() + 0.5; tried = got = 0\nwhile time.time() < end:\n\
         \x20for to in ['{address}', '{denied}', '169.254.169.254', '10.77.0.2']:\n\
         \x20 tried += 1\n\
         \x20 try: socket.create_connection((to, 443), 0.2).close(); got += 1\n\
         \x20 except OSError: pass\nprint(tried > 20, got)\""
    )
}

#[test]
fn nothing_gets_out_right_after_fork() {
    in_rig("state::nothing_gets_out_right_after_fork", async || {
        let rig = Rig::connect();
        let ((name, _), (other, _), (denied, address)) =
            (rig.host("allowed"), rig.host("other"), rig.host("denied"));
        let bed = Bed::new();
        let parent = bed.sandbox(allow([&*name])).await;
        let strain = strain(&denied, address.v4);
        for round in 0..size(4) {
            // By another agent over the same layers, and by a copy under one that goes on.
            if round % 2 == 1 {
                parent.sh("sleep 100 </dev/null >/dev/null 2>&1 &").await;
            }
            let forking = parent.0.forking().expect("it can be copied");
            let same = ForkOptions::default();
            let (same, outcome) = forking.fork(same).await.expect("a copy");
            assert_eq!(outcome.mechanism == "layer", round % 2 == 0, "{outcome:?}");
            let narrower = ForkOptions { egress: Some(allow([&*other])), ..ForkOptions::default() };
            let (narrower, _) = forking.fork(narrower).await.expect("a copy");
            let copies = [parent.clone(), Inside(same), Inside(narrower)];
            let [one, two, three] = copies.each_ref().map(|sandbox| sandbox.sh(&strain));
            let (one, two, three) = futures::join!(one, two, three);
            for output in [one, two, three] {
                assert_eq!(output.stdout_lossy(), "True 0\n", "{output:?}");
            }
            let [_, same, narrower] = copies;
            parent.fetched(&format!("https://{name}/parent")).await;
            same.fetched(&format!("https://{name}/copy")).await;
            narrower.fetched(&format!("https://{other}/copy")).await;
            narrower.refused(&format!("https://{name}/no")).await;
            same.refused(&format!("https://{other}/no")).await;
            parent.sh("pkill -x sleep; true").await;
            same.destroy().await;
            narrower.destroy().await;
        }
        assert!(rig.arrivals(address.v4).is_empty() && rig.queries(&denied).is_empty());
        parent.destroy().await;
        bed.assert_empty();
    });
}

async fn kill_shim(bed: &Bed, id: &sandbar_core::SandboxId) {
    let text = std::fs::read(bed.folder(id).join("record.json")).expect("a record");
    let record: serde_json::Value = serde_json::from_slice(&text).expect("a record in JSON");
    let pid = record["private"]["shim"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).unwrap_or_else(|| panic!("no shim in {record:#}"));
    // Its end is seen by a handle of this very process; a number may soon be another's.
    let shim = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a handle");
    rustix::process::pidfd_send_signal(&shim, rustix::process::Signal::KILL).expect("it is ours");
    eventually("the shim is gone", async || {
        let mut polled = [rustix::event::PollFd::new(&shim, rustix::event::PollFlags::IN)];
        let ready = rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default()));
        (ready.expect("a poll") == 1).then_some(())
    })
    .await;
}

#[test]
fn nothing_gets_out_in_the_first_moments() {
    in_rig("state::nothing_gets_out_in_the_first_moments", async || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let bed = Bed::new();
        let script = format!(
            "import socket, time\n\
             end = time.time() + 0.5; tried = got = 0\n\
             while time.time() < end or tried <= 20:\n\
             \x20 for to in ['{}', '{denied}', '169.254.169.254', '10.77.0.2']:\n\
             \x20   tried += 1\n\
             \x20   try: socket.create_connection((to, 443), 0.2).close(); got += 1\n\
             \x20   except OSError: pass\n\
             open('/tmp/first', 'w').write('%d %d' % (tried > 20, got))\n",
            address.v4
        );
        for _ in 0..size(5) {
            let main = MainCommand::new(Command::new("python3").args(["-c", &*script]));
            let options = CreateOptions::new().with_egress(allow([&*allowed])).with_main(main);
            let sandbox = bed.sandbox_with(options).await;
            let said = eventually("the main command's word", async || {
                let output = sandbox.sh("cat /tmp/first 2>/dev/null").await;
                (!output.stdout.is_empty()).then(|| output.stdout_lossy().into_owned())
            })
            .await;
            assert_eq!(said, "1 0");
            sandbox.destroy().await;
        }
        assert!(rig.arrivals(address.v4).is_empty() && rig.queries(&denied).is_empty());
    });
}

#[test]
fn no_sandbox_reaches_by_the_rule_of_another() {
    in_rig("state::no_sandbox_reaches_by_the_rule_of_another", async || {
        let rig = Rig::connect();
        let bed = std::sync::Arc::new(Bed::new());
        let hosts: Vec<String> = (0..size(24)).map(|_| rig.host("own").0).collect();
        let names = hosts.join(" ");
        let mut tasks = tokio::task::JoinSet::new();
        for (index, own) in hosts.iter().enumerate() {
            let (bed, own, names) = (std::sync::Arc::clone(&bed), own.clone(), names.clone());
            tasks.spawn(async move {
                let sandbox = bed.sandbox(allow([&*own])).await;
                let script = format!(
                    "for name in {names}; do curl -sSkf --max-time 20 https://$name/by-{index} >/dev/null 2>&1 && echo $name; done; true"
                );
                let got = sandbox.sh(&script).await.stdout_lossy().into_owned();
                sandbox.destroy().await;
                (index, own, got)
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (index, own, got) = done.expect("no task is lost");
            assert_eq!(got.trim(), own, "sandbox {index}");
        }
        for (index, host) in hosts.iter().enumerate() {
            let paths: Vec<_> = rig.requests(host).into_iter().map(|request| request.path).collect();
            assert_eq!(paths, [format!("/by-{index}")], "at the host of sandbox {index}");
        }
        bed.assert_empty();
    });
}

#[test]
fn ten_thousand_rules_load_and_none_other_counts() {
    in_rig("state::ten_thousand_rules_load_and_none_other_counts", async || {
        let rig = Rig::connect();
        let ((allowed, _), (denied, address)) = (rig.host("allowed"), rig.host("denied"));
        let base = rig.unique("many");
        let mut rules: Vec<String> = (0..9_000).map(|index| format!("host-{index}.{base}")).collect();
        rules.extend((0..998).map(|index| format!("*.wide-{index}.{base}:443,8000-8100")));
        rules.push(allowed.clone());
        let bed = Bed::new();
        let sandbox = bed.sandbox(allow(rules.iter().map(String::as_str))).await;
        sandbox.fetched(&format!("https://{allowed}/")).await;
        sandbox.refused(&format!("https://{denied}/")).await;
        sandbox.refused(&format!("https://host-9000.{base}/")).await;
        sandbox.refused(&format!("https://{}/", address.v4)).await;
        assert!(rig.arrivals(address.v4).is_empty() && rig.queries(&denied).is_empty());
        sandbox.destroy().await;
    });
}

/// Takes connections, sockets and questions until there are none, and keeps them.
const HOARDER: &str = r#"
import os, resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
name, kept, asked = sys.argv[1], [], 0
def tell():
    with open("/tmp/hoarded.new", "w") as f: f.write("%d %d" % (len(kept), asked))
    os.rename("/tmp/hoarded.new", "/tmp/hoarded")
end = time.time() + 60
while time.time() < end and len(kept) < 4000:
    for kind in ("connect", "ask"):
        try:
            if kind == "connect":
                s = socket.socket(); s.setblocking(False)
                kept.append(s)
                try: s.connect((sys.argv[2], 443))
                except BlockingIOError: pass
            else:
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.sendto(b"\5\5\1\0\0\1\0\0\0\0\0\0\1x\4test\0\0\1\0\1", ("198.18.0.1", 53)); s.close(); asked += 1
        except OSError as e:
            if e.errno == 24: end = 0
    if (len(kept) + asked) % 16 == 0: tell()
tell()
time.sleep(600)
"#;

/// Sockets and questions that are a hoard: what a sandbox may begin at once (`Limits::connection_burst`), so that it meets with limits.
const HOARD: usize = 500;

/// How many sockets and questions a hoarder took so far.
async fn hoarded(sandbox: &Inside) -> (usize, usize) {
    let text = sandbox.sh("cat /tmp/hoarded 2>/dev/null").await.stdout_lossy().into_owned();
    let mut numbers = text.split(' ').filter_map(|number| number.parse().ok());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

#[test]
fn exhaustion_of_one_leaves_the_others_working() {
    in_rig("state::exhaustion_of_one_leaves_the_others_working", async || {
        let rig = Rig::connect();
        let ((greedy, _), (modest, _)) = (rig.host("greedy"), rig.host("modest"));
        let bed = Bed::new();
        let hoarder = bed.sandbox(allow([&*greedy])).await;
        let other = bed.sandbox(allow([&*modest])).await;
        let output = hoarder
            .sh(&format!("python3 -c 'import socket; print(socket.gethostbyname(\"{greedy}\"))'"))
            .await;
        let synthetic = output.stdout_lossy().trim().to_owned();
        for user in users() {
            let command = Command::new("sh").args([
                "-c",
                "rm -f /tmp/hoarded; nohup python3 -c \"$0\" \"$@\" >/dev/null 2>&1 &",
                HOARDER,
                &greedy,
                &synthetic,
            ]);
            let output = hoarder.run_as(user, &command, Vec::new()).await;
            assert!(output.status.is_success(), "{}", output.stderr_lossy());
            eventually("it has taken a lot", async || (hoarded(&hoarder).await.0 >= HOARD).then_some(()))
                .await;
        }
        // While it takes what there is, the other works.
        let mut log = String::new();
        for round in 0..size(20) {
            let begun = Instant::now();
            other.fetched(&format!("https://{modest}/{round}")).await;
            let _ = write!(log, "{:?} ", begun.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(5), "{log}");
        }
        let (kept, asked) = hoarded(&hoarder).await;
        assert!(kept >= HOARD && asked >= HOARD, "{kept} sockets, {asked} questions");
        hoarder.destroy().await;
        other.fetched(&format!("https://{modest}/after")).await;
        other.destroy().await;
        bed.assert_empty();
    });
}
