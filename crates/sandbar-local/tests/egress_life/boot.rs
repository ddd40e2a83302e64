//! The first moments: a main command that dials before it does anything else.

use sandbar_core::{Command, CreateOptions, EgressPolicy, FilesExt, GuestPath, MainCommand, SandboxProvider};
use serde_json::{Value, json};

use crate::support::{eventually, prelude, scene};

/// How often; the moment is not the same each time.
const ROUNDS: usize = 5;
/// How many kinds of destination it dials.
const DIALLED: usize = 3;

#[test]
fn a_main_command_that_dials_at_once_gets_through() {
    scene("boot::a_main_command_that_dials_at_once_gets_through", async |scene| {
        let (name, _) = scene.rig.host("first");
        let raw = scene.rig.address().v4.to_string();
        let rules = [name.clone(), format!("{name}:9999/udp"), format!("{raw}:8000")];
        let policy = EgressPolicy::allow(rules.iter().map(String::as_str)).expect("rules");
        let provider = scene.keeping();
        for round in 0..ROUNDS {
            for first in 0..DIALLED {
                let program = format!(
                    "{}\nwhat = [lambda: get('{raw}', 8000), lambda: echo('{name}', 9999), lambda: get('{name}')][{first}]()\n\
                     open('new', 'w').write(json.dumps(what)); os.rename('new', 'first'); time.sleep(600)",
                    prelude()
                );
                let main = MainCommand::new(Command::new("python3").args(["-c", &program]));
                let options = CreateOptions::new().with_egress(policy.clone()).with_main(main);
                let sandbox = provider.create(options).await.expect("a sandbox");
                let path = GuestPath::new("/home/user/first").expect("a path");
                let mut got = Value::Null;
                eventually("it dialled", async || {
                    let read = sandbox.files().read(&path).await;
                    read.is_ok_and(|bytes| {
                        got = serde_json::from_slice(&bytes).expect("JSON");
                        true
                    })
                })
                .await;
                let wanted = [json!("200"), json!("hello"), json!("200")];
                assert_eq!(got, wanted[first], "round {round}, way {first}");
                sandbox.destroy().await.expect("destroyed");
            }
        }
    });
}
