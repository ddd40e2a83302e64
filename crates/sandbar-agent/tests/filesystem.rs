//! The file-system service.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use sandbar_wire::envd::{
    Code, EntryResponse, EventType, FileType, FilesystemEvent, ListDirResponse, RpcError, WatchDirEvent,
    WatcherEvents,
};
use serde_json::{Value, json};
use support::{Agent, Stream, run};

async fn stat(agent: &Agent, path: &str) -> Result<EntryResponse, RpcError> {
    agent.files("Stat", &json!({"path": path})).await
}

#[test]
fn entries_are_described() {
    let agent = Agent::start();
    run(async {
        std::fs::write(agent.home_path("a.txt"), "12345").unwrap();
        let entry = stat(&agent, "a.txt").await.unwrap().entry;
        assert_eq!((entry.name.as_str(), entry.size, entry.file_type), ("a.txt", 5, FileType::File));
        assert_eq!(entry.path, agent.home_path("a.txt").to_str().unwrap());
        assert!(entry.permissions.starts_with("-rw") && entry.modified_time.is_some());
        assert_eq!(stat(&agent, "~").await.unwrap().entry.file_type, FileType::Directory);
        assert_eq!(stat(&agent, "~").await.unwrap().entry.owner, "user");
        let error = stat(&agent, "none").await.unwrap_err();
        assert_eq!(error.code, Code::NotFound);
        assert_eq!(stat(&agent, "a.txt/x").await.unwrap_err().code, Code::InvalidArgument);
    });
}

#[test]
fn names_that_are_no_text_are_kept_exactly() {
    use std::os::unix::ffi::OsStrExt;
    let agent = Agent::start();
    run(async {
        let name = std::ffi::OsStr::from_bytes(b"bad\xff");
        std::fs::write(agent.home().join(name), "x").unwrap();
        let list: ListDirResponse = agent.files("ListDir", &json!({"path": "~"})).await.unwrap();
        let entry = &list.entries[0];
        assert_eq!(entry.name_b64.as_deref(), Some(&b"bad\xff"[..]));
        let exact = serde_json::to_value(entry).unwrap()["pathB64"].clone();
        let found: EntryResponse = agent.files("Stat", &json!({"path": "", "pathB64": exact})).await.unwrap();
        assert_eq!(found.entry, *entry);
    });
}

#[test]
fn folders_are_made_once() {
    let agent = Agent::start();
    run(async {
        let make = async |path: &str| agent.files::<EntryResponse>("MakeDir", &json!({"path": path})).await;
        let entry = make("a/b/c").await.unwrap().entry;
        assert_eq!((entry.mode, entry.permissions.as_str()), (0o755, "drwxr-xr-x"));
        assert_eq!(entry.owner, "user");
        assert_eq!(make("a/b").await.unwrap_err().code, Code::AlreadyExists);
        std::fs::write(agent.home_path("f"), "").unwrap();
        assert_eq!(make("f").await.unwrap_err().code, Code::InvalidArgument);
        assert_eq!(make("f/x").await.unwrap_err().code, Code::InvalidArgument);
    });
}

#[test]
fn entries_move_into_folders_that_are_made() {
    let agent = Agent::start();
    run(async {
        std::fs::write(agent.home_path("f"), "x").unwrap();
        let moved = async |source: &str, destination: &str| {
            let request = json!({"source": source, "destination": destination});
            agent.files::<EntryResponse>("Move", &request).await
        };
        let entry = moved("f", "new/folder/g").await.unwrap().entry;
        assert_eq!(entry.path, agent.home_path("new/folder/g").to_str().unwrap());
        assert!(!agent.home_path("f").exists());
        assert_eq!(moved("f", "x").await.unwrap_err().code, Code::NotFound);
        // What can't be is the caller's fault.
        assert_eq!(moved("new", "new/folder/in").await.unwrap_err().code, Code::InvalidArgument);
        assert_eq!(stat(&agent, "a\0b").await.unwrap_err().code, Code::InvalidArgument);
    });
}

#[test]
fn removing_is_deep_and_repeatable() {
    let agent = Agent::start();
    run(async {
        std::fs::create_dir_all(agent.home_path("d/e")).unwrap();
        std::fs::create_dir(agent.home_path("kept")).unwrap();
        std::fs::write(agent.home_path("kept/f"), "x").unwrap();
        std::os::unix::fs::symlink("../kept", agent.home_path("d/link")).unwrap();
        for _ in 0..2 {
            agent.files::<Value>("Remove", &json!({"path": "d"})).await.unwrap();
        }
        assert!(!agent.home_path("d").exists() && agent.home_path("kept/f").exists());
        let root = agent.files::<Value>("Remove", &json!({"path": "/"})).await.unwrap_err();
        assert_eq!(root.code, Code::InvalidArgument);
    });
}

#[test]
fn listings_have_a_depth_and_do_not_follow_links() {
    let agent = Agent::start();
    run(async {
        std::fs::create_dir_all(agent.home_path("d/e/f")).unwrap();
        std::fs::write(agent.home_path("d/b"), "").unwrap();
        std::os::unix::fs::symlink("..", agent.home_path("d/up")).unwrap();
        let list = async |path: &str, depth: u32| {
            let request = json!({"path": path, "depth": depth});
            let list: ListDirResponse = agent.files("ListDir", &request).await.unwrap();
            list.entries.into_iter().map(|entry| entry.path).collect::<Vec<_>>()
        };
        let full = |names: &[&str]| {
            names.iter().map(|name| agent.home_path(name).to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(list("d", 0).await, full(&["d/b", "d/e", "d/up"]));
        assert_eq!(list("d", 3).await, full(&["d/b", "d/e", "d/e/f", "d/up"]));
        assert_eq!(list("d/up", 1).await, full(&["d/up/d"]), "paths are below what was asked for");
        for (path, code) in [("d/b", Code::InvalidArgument), ("none", Code::NotFound)] {
            let error = agent.files::<Value>("ListDir", &json!({"path": path})).await.unwrap_err();
            assert_eq!(error.code, code);
        }
        std::os::unix::fs::symlink("loop", agent.home_path("loop")).unwrap();
        let error = agent.files::<Value>("ListDir", &json!({"path": "loop"})).await.unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
    });
}

async fn watch(agent: &Agent, request: Value) -> Stream {
    let mut stream = agent.stream("filesystem.Filesystem/WatchDir", &request, &[]).await;
    assert_eq!(next(&mut stream).await, WatchDirEvent::Start);
    stream
}

async fn next(stream: &mut Stream) -> WatchDirEvent {
    serde_json::from_slice(&stream.message().await.unwrap().unwrap()).unwrap()
}

async fn event(stream: &mut Stream) -> FilesystemEvent {
    match next(stream).await {
        WatchDirEvent::Filesystem(event) => event,
        other => panic!("{other:?}"),
    }
}

#[test]
fn changes_are_reported_in_order() {
    let agent = Agent::start();
    run(async {
        let mut stream = watch(&agent, json!({"path": "~", "includeEntry": true})).await;
        let at = |name: &str| agent.home_path(name);
        std::fs::write(at("f"), "x").unwrap();
        std::fs::set_permissions(at("f"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::rename(at("f"), at("g")).unwrap();
        std::fs::remove_file(at("g")).unwrap();
        let wanted = [
            ("f", EventType::Create),
            ("f", EventType::Write),
            ("f", EventType::Chmod),
            ("f", EventType::Rename),
            ("g", EventType::Create),
            ("g", EventType::Remove),
        ];
        for (name, kind) in wanted {
            let event = event(&mut stream).await;
            assert_eq!((event.name.as_str(), event.event_type), (name, kind));
            assert!(event.entry.is_none() || !matches!(kind, EventType::Rename | EventType::Remove));
        }
        std::fs::write(at("h"), "x").unwrap();
        assert_eq!(event(&mut stream).await.entry.unwrap().name, "h");
    });
}

#[test]
fn folders_below_are_watched_only_where_asked_for() {
    let agent = Agent::start();
    run(async {
        std::fs::create_dir(agent.home_path("d")).unwrap();
        let mut flat = watch(&agent, json!({"path": "~"})).await;
        let mut deep = watch(&agent, json!({"path": "~", "recursive": true})).await;
        std::fs::write(agent.home_path("d/f"), "x").unwrap();
        std::fs::write(agent.home_path("last"), "x").unwrap();
        assert_eq!(event(&mut deep).await.name, "d/f");
        assert_eq!(event(&mut flat).await.name, "last");
    });
}

#[test]
fn no_file_in_a_new_folder_is_lost() {
    const FOLDERS: usize = 40;
    const FILES: usize = 50;
    let agent = Agent::start();
    run(async {
        let mut stream = watch(&agent, json!({"path": "~", "recursive": true})).await;
        let home = agent.home();
        let writer = std::thread::spawn(move || {
            for folder in 0..FOLDERS {
                let folder = home.join(format!("a{folder}/b/c"));
                std::fs::create_dir_all(&folder).unwrap();
                for file in 0..FILES {
                    std::fs::write(folder.join(file.to_string()), "content").unwrap();
                }
            }
        });
        let mut created = BTreeSet::new();
        let mut written = BTreeSet::new();
        while written.len() < FOLDERS * FILES || created.len() < FOLDERS * (FILES + 3) {
            let event = event(&mut stream).await;
            match event.event_type {
                EventType::Create => assert!(created.insert(event.name.clone()), "{} came twice", event.name),
                EventType::Write => {
                    written.insert(event.name);
                }
                other => panic!("{other:?} of {}", event.name),
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_folder_that_moves_keeps_being_watched_under_its_new_name() {
    let agent = Agent::start();
    run(async {
        std::fs::create_dir(agent.home_path("old")).unwrap();
        let mut stream = watch(&agent, json!({"path": "~", "recursive": true})).await;
        std::fs::rename(agent.home_path("old"), agent.home_path("new")).unwrap();
        assert_eq!(event(&mut stream).await.event_type, EventType::Rename);
        let created = event(&mut stream).await;
        assert_eq!((created.name.as_str(), created.event_type), ("new", EventType::Create));
        std::fs::write(agent.home_path("new/f"), "").unwrap();
        assert_eq!(event(&mut stream).await.name, "new/f");
    });
}

#[test]
fn lost_events_are_said_to_be_lost() {
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    if limit > 100_000 {
        eprintln!("skipped: the kernel's queue holds {limit} events");
        return;
    }
    let agent = Agent::start();
    run(async {
        let mut stream = watch(&agent, json!({"path": "~"})).await;
        let flood = |folder: &Path| {
            // Faster than anybody reads: one process, no waiting, two events a round.
            for _ in 0..limit * 2 {
                std::fs::File::create(folder.join("f")).unwrap();
                std::fs::remove_file(folder.join("f")).unwrap();
            }
        };
        flood(&agent.home());
        let error = loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well"),
                Err(error) => break error,
            }
        };
        assert_eq!((error.code, error.reason.as_deref()), (Code::ResourceExhausted, Some("overflow")));
    });
}

#[test]
fn watchers_can_be_polled() {
    let agent = Agent::start();
    run(async {
        let created: Value = agent.files("CreateWatcher", &json!({"path": "~"})).await.unwrap();
        let id = json!({"watcherId": created["watcherId"]});
        std::fs::write(agent.home_path("f"), "").unwrap();
        let mut seen = Vec::new();
        while seen.is_empty() {
            let events: WatcherEvents = agent.files("GetWatcherEvents", &id).await.unwrap();
            seen.extend(events.events);
        }
        assert_eq!((seen[0].name.as_str(), seen[0].event_type), ("f", EventType::Create));
        agent.files::<Value>("RemoveWatcher", &id).await.unwrap();
        let gone = agent.files::<Value>("GetWatcherEvents", &id).await.unwrap_err();
        assert_eq!(gone.code, Code::NotFound);
    });
}

#[test]
fn only_folders_can_be_watched() {
    let agent = Agent::start();
    run(async {
        std::fs::write(agent.home_path("f"), "").unwrap();
        for (path, code) in [("f", Code::InvalidArgument), ("none", Code::NotFound)] {
            let request = json!({"path": path});
            let mut stream = agent.stream("filesystem.Filesystem/WatchDir", &request, &[]).await;
            assert_eq!(stream.message().await.unwrap_err().code, code);
            assert_eq!(agent.files::<Value>("CreateWatcher", &request).await.unwrap_err().code, code);
        }
    });
}
