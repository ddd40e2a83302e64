//! `kill -9` of the shim in the middle of an import and of a removal: what was before, or what was to be.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use sandbar_archive::Pack;
use sandbar_core::{
    Command, CommitOptions, CreateOptions, ErrorKind, GuestPath, ProviderExt, Query, Sandbox, SandboxExt,
    SandboxProvider, State, TemplateId,
};

use crate::support::{Bed, create, kill, shim_pid};

/// Files of a tree: enough that a move of them takes some moments.
const FILES: usize = 60;

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

/// An archive of a folder `tree` with files that all say `word`.
fn tree(scratch: &Path, word: &str) -> Vec<u8> {
    let folder = scratch.join(format!("tree-{word}"));
    for number in 0..FILES {
        let place = folder.join(format!("d{}", number % 6));
        fs::create_dir_all(&place).expect("a folder");
        fs::write(place.join(format!("f{number}")), format!("{word}\n")).expect("a file");
    }
    let mut tar = Vec::new();
    Pack::new().run(fs::File::open(&folder).expect("a folder").as_fd(), b"tree", &mut tar).expect("packed");
    fs::remove_dir_all(folder).expect("removed");
    tar
}

/// Killed in an import.
pub(crate) async fn imports(rounds: u32) {
    let Some(bed) = Bed::new() else { return };
    let sandbox = create(&bed.provider()).await;
    let home = GuestPath::new("/home/user").expect("a path");
    let import = async |word: &str| {
        let pieces: Vec<_> =
            tree(bed.scratch(), word).chunks(4096).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        sandbox.require_archive().expect("archives").import(&home, stream::iter(pieces).boxed()).await
    };
    import("0").await.expect("imported");
    let mut now = "0".to_owned();
    for round in 1..=rounds {
        let shim = shim_pid(&bed, sandbox.id());
        let word = round.to_string();
        let (done, ()) = tokio::join!(import(&word), async {
            tokio::time::sleep(Duration::from_millis(u64::from(round) * 3 % 40)).await;
            shim.into_iter().for_each(kill);
        });
        let found = text(&*sandbox, "cat ~/tree/*/f* | sort | uniq -c").await;
        let whole = |word: &str| format!("{FILES} {word}");
        let is_new = found == whole(&word);
        assert!(is_new || found == whole(&now), "round {round}: some are old and some are new: {found}");
        assert!(is_new || done.is_err(), "round {round}: an import that says it is done is not there");
        if is_new {
            now = word;
        }
        assert_eq!(text(&*sandbox, "ls -A ~").await, "tree", "round {round}: something is left");
    }
    sandbox.destroy().await.expect("destroyed");
    bed.assert_empty("after all").await;
}

/// Killed in a removal: of the sandbox, and of the template that it was made of, by somebody else at the same time.
pub(crate) async fn removals(rounds: u32) {
    let Some(bed) = Bed::new() else { return };
    for round in 0..rounds {
        let sandbox = create(&bed.provider()).await;
        text(&*sandbox, "for i in $(seq 200); do echo $i > f$i; done").await;
        let (id, shim) = (sandbox.id().clone(), shim_pid(&bed, sandbox.id()));
        let provider = bed.provider();
        let (done, ()) = tokio::join!(provider.destroy(&id), async {
            tokio::time::sleep(Duration::from_millis(u64::from(round) % 12)).await;
            shim.into_iter().for_each(kill);
        });
        match provider.describe(&id).await.expect("an answer") {
            None => {
                assert!(!matches!(done, Err(ref error) if error.kind() == ErrorKind::NotFound), "{done:?}");
            }
            // It was not begun, or is not over: either it is whole, or it says that it goes.
            Some(record) if record.state == State::Running => {
                assert!(done.is_err(), "round {round}: it is there and was said to be gone");
                assert_eq!(text(&*sandbox, "ls f* | wc -l").await, "200");
                provider.destroy(&id).await.expect("destroyed");
            }
            Some(_) => {
                assert!(done.is_err(), "round {round}: it is there and was said to be gone");
                provider.destroy(&id).await.expect("destroyed");
            }
        }
        assert!(provider.describe(&id).await.expect("an answer").is_none());
    }
    assert!(bed.provider().list_all(Query::new()).await.expect("a listing").is_empty());
    bed.assert_empty("after all").await;
}

/// Creations against removals of one template, which somebody makes again and again: what a sandbox boots from is there as long as the sandbox is.
pub(crate) async fn templates(count: u32) {
    let Some(bed) = Bed::new() else { return };
    let provider = bed.provider();
    let id = TemplateId::new("wanted").expect("an id");
    let source = create(&provider).await;
    text(&*source, "echo whole > ~/f").await;
    let templates = || provider.require_templates().expect("templates");
    let commit = async || {
        let options = CommitOptions {
            sandbox: source.id().clone(),
            template: id.clone(),
            capture_paths: Vec::new(),
            label: None,
        };
        match templates().commit(options).await {
            // Others hold it still for theirs.
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
        }
    };
    let hold = async || {
        // There are only so many removals.
        let sandbox = loop {
            match provider.create(CreateOptions::new().with_template(id.clone())).await {
                Ok(sandbox) => break sandbox,
                // Somebody removed it, or makes it again.
                Err(error) if error.kind() == ErrorKind::NotFound => commit().await,
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => panic!("{error:?}"),
            }
        };
        for _ in 0..3 {
            assert_eq!(text(&*sandbox, "cat ~/f").await, "whole");
            let error = templates().remove(&id).await.expect_err("removed under its sandbox");
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
        sandbox.destroy().await.expect("destroyed");
    };
    let remove = async || match templates().remove(&id).await {
        Ok(removed) => u32::from(removed),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
            0
        }
    };
    let holds = join_all((0..count).map(|_| hold()));
    let removals = async {
        let mut removed = 0;
        for number in 0..count {
            removed += remove().await;
            // At other moments of the creations.
            tokio::time::sleep(Duration::from_millis(u64::from(number % 7))).await;
        }
        removed
    };
    let (_, removed) = futures::join!(holds, removals);
    println!("{removed} of {count} removals came first");
    remove().await;
    assert!(templates().get(&id).await.expect("an answer").is_none(), "a template that nobody uses stays");
    source.destroy().await.expect("destroyed");
    bed.assert_empty("after all").await;
}
