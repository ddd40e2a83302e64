use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::bed::{Bed, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

/// Small files of the tree.
const FILES: usize = 10_000;
const FILE_BYTES: usize = 1024;
const PER_FOLDER: usize = 100;
pub(crate) const ROUNDS: usize = 3;

/// A tree of small files into a sandbox, and beside it with two `tar`s on the host.
pub(crate) fn copy(bed: &Bed) -> Result<Vec<Row>, String> {
    const WHAT: &str = "`sandbar cp` of 10,000 small files into a sandbox";
    if finish(bed.command_line().args(["cp", "--help"]).stderr(Stdio::null())).is_err() {
        let absent = Peer::Absent("not measured: this executable has no `cp`".into());
        return Ok(vec![Row::new("cp", WHAT, "files/s", Samples::rates(), absent, Bar::AtLeastTimes(0.7))]);
    }
    let tree = bed.folder().join("tree");
    make_tree(&tree).map_err(|why| format!("{}: {why}", tree.display()))?;
    let sandbox = bed.runtime.block_on(bed.create())?;
    let (mut ours, mut theirs) = (Samples::rates(), Samples::rates());
    for round in 0..if bed.quick { 1 } else { ROUNDS } {
        let there = bed.folder().join(format!("copy-{round}"));
        let begun = Instant::now();
        let outcome = with_tar(&tree, &there);
        theirs.value(files_a_second(begun), outcome);
        let target = format!("{}:/tmp/copy-{round}", sandbox.id());
        let begun = Instant::now();
        let outcome = finish(bed.command_line().arg("cp").arg(&tree).arg(target));
        ours.value(files_a_second(begun), outcome);
        std::fs::remove_dir_all(&there).map_err(|why| format!("{}: {why}", there.display()))?;
    }
    let _ = std::fs::remove_dir_all(&tree);
    bed.runtime.block_on(sandbox.destroy()).map_err(|error| error.to_string())?;
    let peer = Peer::measured("`tar | tar` on the host", theirs);
    Ok(vec![Row::new("cp", WHAT, "files/s", ours, peer, Bar::AtLeastTimes(0.7))])
}

pub(crate) fn make_tree(tree: &Path) -> std::io::Result<()> {
    for number in 0..FILES {
        let folder = tree.join((number / PER_FOLDER).to_string());
        if number % PER_FOLDER == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(number.to_string()), [b'x'; FILE_BYTES])?;
    }
    Ok(())
}

pub(crate) fn with_tar(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::create_dir(to).map_err(|why| why.to_string())?;
    let mut packing =
        Command::new("tar").arg("-C").arg(from).args(["-cf", "-", "."]).stdout(Stdio::piped()).spawn();
    let packing = packing.as_mut().map_err(|why| format!("tar: {why}"))?;
    let pipe = packing.stdout.take().ok_or("tar has no output")?;
    let unpacked = finish(Command::new("tar").arg("-C").arg(to).args(["-xf", "-"]).stdin(Stdio::from(pipe)));
    let packed = packing.wait().map_err(|why| why.to_string())?;
    if packed.success() { unpacked } else { Err(format!("tar: {packed}")) }
}

#[expect(clippy::cast_precision_loss, reason = "far below the exact range")]
pub(crate) fn files_a_second(begun: Instant) -> f64 {
    FILES as f64 / begun.elapsed().as_secs_f64()
}
