use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bed::{Bed, finish};
use crate::memory::{Peak, has_name};
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
        let outcome = piped(packing, bed.command_line().args(["import", &place]), None);
        import.value(files_a_second(begun), outcome);
        with_host(of_export, &tree, &there)?;
        std::fs::create_dir(&there).map_err(|why| format!("{}: {why}", there.display()))?;
        let begun = Instant::now();
        let mut packing = bed.command_line();
        packing.args(["export", &place]);
        let outcome = piped(packing, Command::new("tar").arg("-C").arg(&there).args(["-xf", "-"]), None);
        export.value(files_a_second(begun), outcome);
        remove(&there)?;
    }
    // By themselves: looks at processes take time from what is measured.
    let memory = peaks(bed, &tree, sandbox.id().as_str());
    let _ = std::fs::remove_dir_all(&tree);
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let [import, of_import, export, of_export] = samples;
    let row = |what: &str, ours, theirs| {
        let peer = Peer::measured("`tar | tar` on the host", theirs);
        Row::new("archive", what, "files/s", ours, peer, Bar::AtLeastTimes(0.7))
    };
    let mut rows = vec![
        row("`sandbar import` of 10,000 small files from a `tar`", import, of_import),
        row("`sandbar export` of 10,000 small files to a `tar`", export, of_export),
    ];
    for (what, peak) in ["import", "export"].into_iter().zip(memory) {
        let what = format!("memory of an {what} at its peak, of the process and of the one inside");
        rows.push(Row::new("archive", what, "MiB", peak, Peer::none(), Bar::AtMost(32.0)));
    }
    Ok(rows)
}

/// The most memory that an import and an export of the tree take.
fn peaks(bed: &Bed, tree: &Path, id: &str) -> [Samples; 2] {
    let place = format!("{id}:/tmp/archive-memory");
    let mut samples = [(); 2].map(|()| Samples::default());
    let [of_import, of_export] = &mut samples;
    let note = |samples: &mut Samples, peak: &Peak, outcome: Result<(), String>| {
        let seen = match peak.processes() {
            0 | 1 => Err("not both processes were seen".to_owned()),
            _ => outcome,
        };
        samples.value(peak.mib(), seen);
    };
    let mut peak = Peak::default();
    let mut packing = Command::new("tar");
    packing.arg("-C").arg(tree).args(["-cf", "-", "."]);
    let outcome = piped(packing, bed.command_line().args(["import", &place]), Some(&mut peak));
    note(of_import, &peak, outcome);
    let mut peak = Peak::default();
    let mut packing = bed.command_line();
    packing.args(["export", &place]);
    let outcome =
        piped(packing, Command::new("tar").args(["-tf", "-"]).stdout(Stdio::null()), Some(&mut peak));
    note(of_export, &peak, outcome);
    samples
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

/// The name of the process inside that packs and unpacks.
const INSIDE: &str = "sandbar-archive";
/// The name of the command line's process.
const OUTSIDE: &str = "sandbar";
/// Between two looks at their memory, of which the kernel keeps the peak.
const LOOK: Duration = Duration::from_millis(2);

/// Runs one command into the other, and looks at the memory of ours meanwhile if that is asked for.
fn piped(mut from: Command, into: &mut Command, peak: Option<&mut Peak>) -> Result<(), String> {
    let mut from = from.stdout(Stdio::piped()).spawn().map_err(|why| format!("the sender: {why}"))?;
    let pipe = from.stdout.take().ok_or("the sender has no output")?;
    let received = match peak {
        None => finish(into.stdin(Stdio::from(pipe))),
        Some(peak) => {
            let mut child = into.stdin(Stdio::from(pipe)).spawn().map_err(|why| why.to_string())?;
            loop {
                peak.look(|pid| has_name(pid, INSIDE) || has_name(pid, OUTSIDE))?;
                match child.try_wait().map_err(|why| why.to_string())? {
                    None => std::thread::sleep(LOOK),
                    Some(status) if status.success() => break Ok(()),
                    Some(status) => break Err(status.to_string()),
                }
            }
        }
    };
    let sent = from.wait().map_err(|why| why.to_string())?;
    if sent.success() { received } else { Err(format!("the sender: {sent}")) }
}
