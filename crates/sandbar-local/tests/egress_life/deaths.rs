//! The gateway is a part of the shim, and dies with it.

use std::time::Duration;

use sandbar_core::{EgressPolicy, FilesExt, GatewayState, GuestPath, SandboxExt, State};

use crate::support::{Tries, end_shim, eventually, scene, shim_pid};

/// Tries again and again, and keeps the last answers in files: nobody is there who could be told.
const WATCHER: &str = "name, known, raw = sys.argv[1:]
def put(place, text):
    with open(place + '.new', 'w') as file: file.write(text)
    os.rename(place + '.new', place)
def dripping():
    try:
        s = open_to(known, 8000, 60)
        ask(s, '/drip?count=100000&ms=5', name)
        s.recv(65536)
        put('drip', 'begun')
        while s.recv(65536): pass
        put('drip', 'end')
    except OSError as e: put('drip', why(e))
threading.Thread(target=dripping).start()
round = 0
while True:
    round += 1
    tried = [get(known, 8000, limit=0.5), get(raw, 8000, limit=0.5)]
    put('tried', json.dumps([round] + tried))
    print(round, flush=True)
    time.sleep(0.05)";

#[test]
fn killed_in_a_download_it_leaves_no_network_and_the_next_command_brings_it_back() {
    scene(
        "deaths::killed_in_a_download_it_leaves_no_network_and_the_next_command_brings_it_back",
        async |scene| {
            let rig = &scene.rig;
            let ((name, at), raw) = (rig.host("kept"), rig.address());
            let rules = [
                name.clone(),
                format!("{name}:8000"),
                format!("{}:8000", raw.v4),
                format!("{name}:9999/udp"),
            ];
            let policy = EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules");
            let sandbox = scene.create(policy).await;
            let id = sandbox.id().clone();
            let known = sandbox
                .python("show([address(sys.argv[1]), get(sys.argv[1]), echo(sys.argv[1], 9999)])", &[&name])
                .await;
            assert_eq!((known[1].as_str(), known[2].as_str()), (Some("200"), Some("hello")), "{known}");
            let known = known[0].as_str().expect("an address").to_owned();
            let before = sandbox.require_network().expect("a network").policy().await.expect("a policy");

            let mut watcher = sandbox.begin(WATCHER, &[&name, &known, &raw.v4.to_string()]).await;
            watcher.line(Duration::from_secs(20)).await.expect("a round");
            // Reads by its own handle: it must not be what brings the gateway back.
            let upper = scene.folder(&id).join("fs/upper/home/user");
            let read = |name: &str| std::fs::read_to_string(upper.join(name)).unwrap_or_default();
            let can_look = std::fs::read_dir(&upper).is_ok();
            if can_look {
                eventually("the download began", async || read("drip") == "begun").await;
            }
            end_shim(scene, &id).await;
            let dead = rig.mark();
            if can_look {
                eventually("the download broke off", async || read("drip") != "begun").await;
                let tried = || serde_json::from_str::<serde_json::Value>(&read("tried")).unwrap_or_default();
                let round = tried()[0].as_u64().unwrap_or_default();
                // Two rounds on, the whole of one was made without a gateway.
                eventually("two more rounds", async || tried()[0].as_u64().unwrap_or_default() >= round + 2)
                    .await;
                let tried = tried();
                assert!(tried[1] != "200" && tried[2] != "200", "{tried}");
            }
            let record = scene.described(&*sandbox).await;
            assert_eq!((record.state, record.egress.gateway), (State::Running, Some(GatewayState::Down)));
            assert!(
                record.reason.as_deref().is_some_and(|why| why.contains("gateway is down")),
                "{:?}",
                record.reason
            );
            assert_eq!(record.egress.policy.as_ref(), Some(&before));
            assert!(shim_pid(scene, &id).is_none(), "looking adopts nothing");
            for to in [at.v4, raw.v4] {
                let since = rig.arrivals_since(dead, Some(to.into()));
                assert!(since.is_empty(), "without a gateway: {since:?}");
            }

            let path = GuestPath::new("/home/user/drip").expect("a path");
            let drip = sandbox.files().read(&path).await.expect("what became of the download");
            assert!([&b"ECONNRESET"[..], b"end"].contains(&&*drip), "{}", String::from_utf8_lossy(&drip));
            let again = "name, known, raw = sys.argv[1:]
show([get(known, 8000), get(raw, 8000), address(name), get(known, 80, name=name), echo(known, 9999)])";
            let tried = sandbox.python(again, &[&name, &known, &raw.v4.to_string()]).await;
            assert_eq!(tried, serde_json::json!(["200", "200", known, "200", "hello"]));
            let record = scene.described(&*sandbox).await;
            assert_eq!((record.egress.gateway, record.reason), (Some(GatewayState::Serving), None));
            assert_eq!(
                sandbox.require_network().expect("a network").policy().await.expect("a policy"),
                before
            );
        },
    );
}
