//! Watching trees whose folders get other names.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandbar_wire::envd::{Code, EventType, FilesystemEvent, RpcError, WatchDirEvent};
use serde_json::json;
use support::{Agent, Stream, run};

/// Nothing is told for this long only where nothing more comes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn watch(agent: &Agent) -> Stream {
    let request = json!({"path": "~", "recursive": true});
    let mut stream = agent.stream("filesystem.Filesystem/WatchDir", &request, &[]).await;
    assert_eq!(next(&mut stream).await.unwrap(), WatchDirEvent::Start);
    stream
}

async fn next(stream: &mut Stream) -> Result<WatchDirEvent, RpcError> {
    let message = stream.message().await?.expect("the stream goes on");
    Ok(serde_json::from_slice(&message).unwrap())
}

/// What was told until this file was created; an error says that something was lost.
async fn until(stream: &mut Stream, last: &str) -> Result<Vec<FilesystemEvent>, RpcError> {
    let mut told = Vec::new();
    loop {
        if let WatchDirEvent::Filesystem(event) = next(stream).await? {
            if event.name == last && event.event_type == EventType::Create {
                return Ok(told);
            }
            told.push(event);
        }
    }
}

fn words(told: &[FilesystemEvent]) -> Vec<String> {
    let word = |event: &FilesystemEvent| {
        let to = event.new_name.as_ref().map(|to| format!(" {to}")).unwrap_or_default();
        format!("{:?} {}{to}", event.event_type, event.name)
    };
    told.iter().map(word).collect()
}

fn exchange(a: &Path, b: &Path) {
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
}

#[test]
fn what_happens_below_a_renamed_folder_is_told_and_nothing_else() {
    let agent = Agent::start();
    run(async {
        let at = |name: &str| agent.home_path(name);
        std::fs::create_dir_all(at("a/b/c")).unwrap();
        let mut stream = watch(&agent).await;
        std::fs::rename(at("a"), at("z")).unwrap();
        std::fs::write(at("z/b/c/q"), "q").unwrap();
        std::fs::remove_dir_all(at("z")).unwrap();
        std::fs::write(at("last"), "").unwrap();
        let told = words(&until(&mut stream, "last").await.unwrap());
        let below = |place: &str| format!("{place}/b/c/q");
        let expected = |place: &str| {
            vec![
                "Rename a z".to_owned(),
                "Create z".to_owned(),
                format!("Create {}", below(place)),
                format!("Write {}", below(place)),
                format!("Remove {}", below(place)),
                format!("Remove {place}/b/c"),
                format!("Remove {place}/b"),
                "Remove z".to_owned(),
            ]
        };
        assert_eq!(told, expected("z"));
    });
}

#[test]
fn folders_that_swap_or_replace_one_another_keep_their_own_watches() {
    let agent = Agent::start();
    run(async {
        let at = |name: &str| agent.home_path(name);
        for folder in ["a/in-a", "b/in-b", "c/in-c", "empty"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        let mut stream = watch(&agent).await;
        exchange(&at("a"), &at("b"));
        std::fs::write(at("b/in-a/f"), "").unwrap();
        std::fs::write(at("a/in-b/f"), "").unwrap();
        std::fs::rename(at("c"), at("empty")).unwrap();
        std::fs::write(at("empty/in-c/f"), "").unwrap();
        // Two names in a row, and back: nobody has looked in between.
        std::fs::rename(at("a"), at("x")).unwrap();
        std::fs::rename(at("x"), at("y")).unwrap();
        std::fs::rename(at("y"), at("a")).unwrap();
        std::fs::write(at("a/in-b/g"), "").unwrap();
        std::fs::write(at("last"), "").unwrap();
        let told = until(&mut stream, "last").await.unwrap();
        let created: Vec<&str> = told
            .iter()
            .filter(|event| event.event_type == EventType::Create && event.name.contains("in-"))
            .map(|event| event.name.as_str())
            .collect();
        assert_eq!(created, ["b/in-a/f", "a/in-b/f", "empty/in-c/f", "a/in-b/g"], "{:?}", words(&told));
    });
}

#[test]
fn a_folder_that_comes_in_is_told_with_its_content_and_one_that_leaves_is_forgotten() {
    let agent = Agent::start();
    let outside = tempfile::tempdir_in(agent.home().parent().unwrap()).unwrap();
    run(async {
        let at = |name: &str| agent.home_path(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        let mut stream = watch(&agent).await;
        let away = outside.path().join("away");
        std::fs::rename(at("a"), &away).unwrap();
        std::fs::write(at("first"), "").unwrap();
        assert_eq!(words(&until(&mut stream, "first").await.unwrap()), ["Rename a"]);
        std::fs::write(away.join("b/unseen"), "x").unwrap();
        std::fs::rename(&away, at("back")).unwrap();
        std::fs::write(at("last"), "").unwrap();
        let told = words(&until(&mut stream, "last").await.unwrap());
        assert_eq!(told, ["Create back", "Create back/b", "Create back/b/unseen", "Write back/b/unseen"]);
    });
}

#[test]
fn what_the_kernel_shows_is_refused_at_once() {
    let agent = Agent::start();
    run(async {
        for path in ["/proc", "/proc/self", "/sys/kernel"] {
            let request = json!({"path": path});
            let mut stream = agent.stream("filesystem.Filesystem/WatchDir", &request, &[]).await;
            let error = stream.message().await.unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument, "{error:?}");
            assert!(error.message.contains("without telling"), "{error:?}");
        }
    });
}

/// Renames folders all the time while files are made in them, and looks for each final file, by its own name, in what was told.
#[test]
fn no_file_is_lost_while_folders_above_it_get_other_names() {
    // All their events together are fewer than the kernel's queue holds.
    const ROUNDS: usize = 150;
    const FAST_FILES: usize = 10;
    let agent = Agent::start();
    run(async {
        let mut stream = watch(&agent).await;
        let home = agent.home();
        let writer = std::thread::spawn(move || {
            let (next_round, rounds) = std::sync::mpsc::channel::<()>();
            let filler = {
                let home = home.clone();
                std::thread::spawn(move || {
                    // It fills a folder that is renamed meanwhile, and leaves it to chance which name it meets.
                    let mut made = 0;
                    for (round, ()) in rounds.into_iter().enumerate() {
                        for file in 0..FAST_FILES {
                            let folder = home.join(if file % 2 == 0 { "even" } else { "odd" });
                            let written = std::fs::write(folder.join(format!("fast-{round}-{file}")), "x");
                            made += usize::from(written.is_ok());
                        }
                    }
                    made
                })
            };
            std::fs::create_dir_all(home.join("even/deep")).unwrap();
            for round in 0..ROUNDS {
                next_round.send(()).unwrap();
                let at = |name: &str| home.join(name);
                std::fs::rename(at("even"), at("odd")).unwrap();
                let fresh = format!("fresh-{round}");
                std::fs::create_dir_all(at(&fresh).join("one/two")).unwrap();
                std::fs::write(at(&fresh).join(format!("one/two/f-{round}")), "x").unwrap();
                std::fs::rename(at(&fresh).join("one"), at(&fresh).join("uno")).unwrap();
                std::fs::rename(at(&fresh), at("odd/deep").join(&fresh)).unwrap();
                let inner = at("odd/deep").join(&fresh).join("uno");
                std::fs::write(inner.join(format!("two/g-{round}")), "x").unwrap();
                std::fs::rename(inner.join("two"), at("odd/deep").join(format!("two-{round}"))).unwrap();
                std::fs::create_dir(at("two")).unwrap();
                exchange(&at("two"), &at("odd"));
                std::fs::write(at("two/deep").join(format!("two-{round}/h-{round}")), "x").unwrap();
                // Again where a file came while it was being emptied.
                while std::fs::remove_dir_all(at("odd")).is_err() {}
                std::fs::rename(at("two"), at("even")).unwrap();
            }
            drop(next_round);
            let made = filler.join().unwrap();
            std::fs::write(home.join("last"), "").unwrap();
            made
        });
        let made = tokio::task::spawn_blocking(move || writer.join().unwrap()).await.unwrap();
        assert!(made > 0, "nothing was made in a folder that is renamed");
        let mut lost = BTreeSet::new();
        let mut pending = vec![agent.home()];
        while let Some(folder) = pending.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    pending.push(entry.path());
                } else {
                    lost.insert(entry.file_name().into_string().unwrap());
                }
            }
        }
        assert!(lost.len() >= 3 * ROUNDS, "{} files", lost.len());
        // What was missed on the way is told once the names have settled, so it may come after the last.
        while !lost.is_empty() {
            let Ok(event) = tokio::time::timeout(PATIENCE, next(&mut stream)).await else {
                panic!("{} lost, such as {:?}", lost.len(), lost.first());
            };
            let event = event.expect("so few events overflow nothing");
            if let WatchDirEvent::Filesystem(event) = event
                && matches!(event.event_type, EventType::Create | EventType::Write)
                && let Some(name) = event.name.rsplit('/').next()
            {
                lost.remove(name);
            }
        }
        // Afterwards all is watched, under the names of now.
        std::fs::write(agent.home_path("even/deep/two-7/after"), "").unwrap();
        until(&mut stream, "even/deep/two-7/after").await.unwrap();
    });
}
