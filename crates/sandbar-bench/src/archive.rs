use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::bed::{Bed, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;
use crate::tree::{ROUNDS, files_a_second, make_tree, with_tar};

/// A tree of small files as an archive: `tar` on the host packs what is imported and unpacks what is exported, and is the peer on its own.
pub(crate) fn both_ways(bed: &Bed) -> Result<Vec<Row>, String> {
    let tree = bed.folder().join("archive-tree");
    make_tree(&tree).map_err(|why| format!("{}: {why}", tree.display()))?;
    let sandbox = bed.runtime.block_on(bed.create())?;
    let mut samples = [(); 4].map(|()| Samples::rates());
    let [import, of_import, export, of_export] = &mut samples;
    for round in 0..if bed.quick { 1 } else { ROUNDS } {
        let there = bed.folder().join(format!("archive-{round}"));
        let place = format!("{}:/tmp/archive-{round}", sandbox.id());
        with_host(of_import, &tree, &there)?;
        let begun = Instant::now();
        let mut packing = Command::new("tar");
        packing.arg("-C").arg(&tree).args(["-cf", "-", "."]);
        let outcome = piped(packing, bed.command_line().args(["import", &place]));
        import.value(files_a_second(begun), outcome);
        with_host(of_export, &tree, &there)?;
        std::fs::create_dir(&there).map_err(|why| format!("{}: {why}", there.display()))?;
        let begun = Instant::now();
        let mut packing = bed.command_line();
        packing.args(["export", &place]);
        let outcome = piped(packing, Command::new("tar").arg("-C").arg(&there).args(["-xf", "-"]));
        export.value(files_a_second(begun), outcome);
        remove(&there)?;
    }
    let _ = std::fs::remove_dir_all(&tree);
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let [import, of_import, export, of_export] = samples;
    let row = |what: &str, ours, theirs| {
        let peer = Peer::measured("`tar | tar` on the host", theirs);
        Row::new("archive", what, "files/s", ours, peer, Bar::AtLeastTimes(0.7))
    };
    Ok(vec![
        row("`sandbar import` of 10,000 small files from a `tar`", import, of_import),
        row("`sandbar export` of 10,000 small files to a `tar`", export, of_export),
    ])
}

fn with_host(samples: &mut Samples, tree: &Path, there: &Path) -> Result<(), String> {
    let begun = Instant::now();
    let outcome = with_tar(tree, there);
    samples.value(files_a_second(begun), outcome);
    remove(there)
}

fn remove(folder: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))
}

/// Runs one command into the other.
fn piped(mut from: Command, into: &mut Command) -> Result<(), String> {
    let mut from = from.stdout(Stdio::piped()).spawn().map_err(|why| format!("the sender: {why}"))?;
    let pipe = from.stdout.take().ok_or("the sender has no output")?;
    let received = finish(into.stdin(Stdio::from(pipe)));
    let sent = from.wait().map_err(|why| why.to_string())?;
    if sent.success() { received } else { Err(format!("the sender: {sent}")) }
}
