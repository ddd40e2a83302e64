use std::path::Path;
use std::process::{Command as HostCommand, Stdio};
use std::sync::Arc;
use std::time::Instant;

use sandbar::{Command, ForkOptions, Sandbox, SandboxExt as _, SandboxProvider};

use crate::bed::{Bed, create, finish};
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;
use crate::store::Store;

const ROUNDS: usize = 30;
/// MiB that were written before a fork whose time does not depend on that.
const SIZES: [u32; 2] = [1, 256];
/// As the last of [`SIZES`], in long runs (`SANDBAR_SOAK`): five GiB.
const LARGE: u32 = 5 * 1024;
/// MiB in files of 16 KiB each, where each file takes time.
const TREE: u32 = 64;
/// The folder of that, in a sandbox and on the host.
const TREE_NAME: &str = "tree";
/// It notes each moment of more than a millisecond in which it did not run.
const TICKER: &str = r"
import time
gaps = open('/tmp/gaps', 'a')
last = time.monotonic()
while True:
    time.sleep(0.0002)
    now = time.monotonic()
    if now - last > 0.001:
        gaps.write('%f\n' % (1000 * (now - last))); gaps.flush()
    last = now
";

/// By moving the writable layers, of a parent in which nothing runs.
pub(crate) fn by_layer(bed: &Bed) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for mib in sizes() {
        let parent = Parent::new(bed, &bed.provider, &written(mib), false)?;
        let (forks, _) = parent.forks("layer", None)?;
        parent.end()?;
        let what = format!("fork by `layer`, {mib} MiB written");
        rows.push(Row::new("fork-layer", what, "ms", forks, Peer::none(), Bar::AtMost(10.0)));
    }
    Ok(rows)
}

/// By snapshots of btrfs, of a parent with a live process.
pub(crate) fn by_subvolume(bed: &Bed) -> Result<Vec<Row>, String> {
    let what = |mib: u32| format!("fork by `subvolume`, {mib} MiB written");
    let store = match Store::new(bed, "btrfs") {
        Ok(store) => store,
        Err(why) => return Ok(vec![absent("fork-subvolume", what(SIZES[0]), Bar::AtMost(10.0), &why)]),
    };
    let mut rows = Vec::new();
    for mib in sizes() {
        let parent = Parent::new(bed, &store.provider, &written(mib), true)?;
        let source = parent.written(store.folder());
        let peer = Snapshots(store.folder().join("peer"));
        let (forks, theirs) = parent.forks("subvolume", Some(&mut || peer.take(&source)))?;
        let still = parent.gaps()?;
        parent.end()?;
        let peer = Peer::measured("`btrfs subvolume snapshot`", theirs);
        rows.push(Row::new("fork-subvolume", what(mib), "ms", forks, peer, Bar::AtMost(10.0)));
        rows.push(Row::new("fork-subvolume", STILL, "ms", still, Peer::none(), Bar::None));
    }
    Ok(rows)
}

/// By sharing the bytes of each file, on XFS.
pub(crate) fn by_reflink(bed: &Bed) -> Result<Vec<Row>, String> {
    const NAME: &str = "fork-reflink";
    match Store::new(bed, "xfs") {
        Ok(store) => {
            let tree = store.folder().join(TREE_NAME);
            beside_cp(
                bed,
                &store.provider,
                (NAME, "reflink"),
                &tree,
                ("`cp -a --reflink`", "--reflink=always"),
            )
        }
        Err(why) => Ok(vec![absent(NAME, of_tree("reflink"), Bar::AtMostTimes(1.2), &why)]),
    }
}

/// By copying, where the temporary folder is.
pub(crate) fn by_copy(bed: &Bed) -> Result<Vec<Row>, String> {
    let tree = bed.folder().join(TREE_NAME);
    beside_cp(bed, &bed.provider, ("fork-copy", "copy"), &tree, ("`cp -a`", "--reflink=never"))
}

const STILL: &str = "of it, the parent stands still";

fn of_tree(mechanism: &str) -> String {
    format!("fork by `{mechanism}`, {TREE} MiB in files of 16 KiB written")
}

/// Forks beside a program that copies such a tree on the same file system.
fn beside_cp(
    bed: &Bed,
    provider: &Arc<dyn SandboxProvider>,
    (name, mechanism): (&'static str, &str),
    tree: &Path,
    (peer, option): (&'static str, &str),
) -> Result<Vec<Row>, String> {
    let make = |folder: &str| {
        format!("mkdir -p {folder} && head -c {TREE}M /dev/urandom | split -a 4 -b 16k - {folder}/f && sync")
    };
    finish(HostCommand::new("sh").args(["-c", &make(&tree.display().to_string())]))?;
    let parent = Parent::new(bed, provider, &make(&format!("~/{TREE_NAME}")), true)?;
    let copy = tree.with_extension("copy");
    let mut with_cp = || {
        let begun = Instant::now();
        let outcome = finish(HostCommand::new("cp").args(["-a", option]).arg(tree).arg(&copy));
        let took = begun.elapsed();
        std::fs::remove_dir_all(&copy).map_err(|why| format!("{}: {why}", copy.display()))?;
        outcome.map(|()| took)
    };
    let done = parent.forks(mechanism, Some(&mut with_cp));
    let still = parent.gaps();
    parent.end()?;
    std::fs::remove_dir_all(tree).map_err(|why| format!("{}: {why}", tree.display()))?;
    let ((forks, theirs), still) = (done?, still?);
    let row = |what, ours, peer| Row::new(name, what, "ms", ours, peer, Bar::AtMostTimes(1.2));
    Ok(vec![
        row(of_tree(mechanism), forks, Peer::measured(peer, theirs.clone())),
        row(STILL.to_owned(), still, Peer::measured(peer, theirs)),
    ])
}

fn sizes() -> [u32; 2] {
    let [small, large] = SIZES;
    [small, if std::env::var_os("SANDBAR_SOAK").is_some() { LARGE } else { large }]
}

fn written(mib: u32) -> String {
    format!("head -c {mib}M /dev/urandom > ~/data && sync")
}

fn absent(name: &'static str, what: String, bar: Bar, why: &str) -> Row {
    Row::new(name, what, "ms", Samples::default(), Peer::Absent(format!("not measured: {why}")), bar)
}

/// A sandbox that is forked.
struct Parent<'a> {
    bed: &'a Bed,
    sandbox: Arc<dyn Sandbox>,
    has_ticker: bool,
}

impl<'a> Parent<'a> {
    /// One that wrote by this script, and in which a process lives if `is_busy`.
    fn new(
        bed: &'a Bed,
        provider: &Arc<dyn SandboxProvider>,
        script: &str,
        is_busy: bool,
    ) -> Result<Self, String> {
        let sandbox = bed.runtime.block_on(create(provider))?;
        let parent = Self { bed, sandbox, has_ticker: false };
        parent.run(script)?;
        if !is_busy {
            return Ok(parent);
        }
        let has_ticker = parent.run("command -v python3").is_ok();
        let (program, wait) = if has_ticker {
            (format!("python3 -c \"{TICKER}\""), "until [ -e /tmp/gaps ]; do sleep 0.01; done")
        } else {
            ("sleep 100000".to_owned(), "true")
        };
        parent.run(&format!("{program} </dev/null >/dev/null 2>&1 & {wait}"))?;
        Ok(Self { has_ticker, ..parent })
    }

    fn run(&self, script: &str) -> Result<String, String> {
        let output = self.bed.runtime.block_on(self.sandbox.commands().run(&Command::shell(script)));
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.is_success() {
            return Err(format!("`{script}`: {:?}: {}", output.status, output.stderr_lossy()));
        }
        Ok(output.stdout_lossy().into_owned())
    }

    /// How long forks take, each copy gone before the next, and in turns with a peer.
    fn forks(
        &self,
        mechanism: &str,
        mut peer: Option<&mut dyn FnMut() -> Result<std::time::Duration, String>>,
    ) -> Result<(Samples, Samples), String> {
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        if self.has_ticker {
            self.run("true > /tmp/gaps")?;
        }
        for _ in 0..self.bed.rounds(ROUNDS) {
            if let Some(peer) = &mut peer {
                match peer() {
                    Ok(took) => theirs.took(took, Ok(())),
                    Err(why) => theirs.took(std::time::Duration::ZERO, Err::<(), _>(why)),
                }
            }
            let begun = Instant::now();
            let forked = self.bed.runtime.block_on(async {
                let forking = self.sandbox.require_forking().map_err(|error| error.to_string())?;
                forking.fork(ForkOptions::default()).await.map_err(|error| error.to_string())
            });
            let took = begun.elapsed();
            let (copy, outcome) = forked?;
            let by = outcome.mechanism;
            let checked = if by == mechanism { Ok(()) } else { Err(format!("it was by `{by}`")) };
            ours.took(took, checked);
            self.bed.runtime.block_on(copy.destroy()).map_err(|error| error.to_string())?;
        }
        Ok((ours, theirs))
    }

    /// The longest moments in which the live process did not run, one for each fork; none where there is no `python3` in the sandbox.
    fn gaps(&self) -> Result<Samples, String> {
        let mut samples = Samples::default();
        if !self.has_ticker {
            return Ok(samples);
        }
        let text = self.run("cat /tmp/gaps")?;
        let mut gaps: Vec<f64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        gaps.sort_by(|one, other| other.total_cmp(one));
        gaps.truncate(self.bed.rounds(ROUNDS));
        for gap in gaps {
            samples.value(gap, Ok(()));
        }
        Ok(samples)
    }

    /// Where its writable layers are, below the folder that has its data folder.
    fn written(&self, folder: &Path) -> std::path::PathBuf {
        folder.join("home/sandboxes").join(self.sandbox.id().as_str()).join("fs")
    }

    fn end(self) -> Result<(), String> {
        self.bed.runtime.block_on(self.sandbox.destroy()).map(drop).map_err(|error| error.to_string())
    }
}

/// Snapshots by the file system's own program, at this place, each gone before the next.
struct Snapshots(std::path::PathBuf);

impl Snapshots {
    fn take(&self, source: &Path) -> Result<std::time::Duration, String> {
        let mut command = HostCommand::new("btrfs");
        command.args(["subvolume", "snapshot"]).arg(source).arg(&self.0).stdout(Stdio::null());
        let begun = Instant::now();
        finish(&mut command)?;
        let took = begun.elapsed();
        let mut command = HostCommand::new("btrfs");
        finish(command.args(["subvolume", "delete"]).arg(&self.0).stdout(Stdio::null()))?;
        Ok(took)
    }
}
