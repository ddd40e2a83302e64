use std::num::NonZeroU64;

use clap::Args;
use sandbar::GuestPath;

use crate::value::{HumanDuration, contract};

/// Tell changes in a folder of a sandbox as they happen
///
/// One a line: `create`, `write`, `rename` with both names, or with one if it was moved to where nobody watches, `remove`, and `chmod`, which is any
/// change of attributes, times included (`touch`). Equal changes of a file in a row may be told as one. What was there before is not told, and nothing of
/// /proc and /sys. Should more happen than can be told, the last line is `overflow`, and the exit code 125: then some were lost.
///
/// Ends with the folder or the sandbox, on Ctrl-C (exit code 130), and as `--count` and `--timeout` say.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar watch demo /home/user --recursive
  sandbar watch demo /tmp --count 1 --timeout 30s
  sandbar watch demo /home/user --json | jq -r .path

With `--json` each line is an object; the first one, of kind `armed`, comes once nothing can be missed.")]
pub(crate) struct WatchArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The folder
    #[arg(value_name = "PATH", value_parser = contract::<GuestPath>)]
    pub(crate) path: GuestPath,
    /// All below it, too, also in folders that are made later
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// End after this many changes
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<NonZeroU64>,
    /// End after this long: with exit code 124 if `--count` was not reached, else 0
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<HumanDuration>,
}
