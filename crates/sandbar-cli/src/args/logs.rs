use clap::Args;

use crate::value::{Count, Since};

/// Show what a sandbox's main command said
///
/// What it wrote to standard output comes on standard output, what it wrote to standard error on standard error, unchanged. The last of it is kept,
/// within bounds, also when the sandbox has stopped; what is not kept any more is said on standard error.
///
/// With `--json`: one object a line, `{at, stream, data}` or, if a piece is not UTF-8, `{at, stream, data_base64}`; `{lost}` where bytes are not kept.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar logs web
  sandbar logs web -f --tail 20
  sandbar logs web --since 10m --json")]
pub(crate) struct LogsArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Go on with what it will say, until it has ended and is not started again, or until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last so many lines
    #[arg(long, value_name = "COUNT")]
    pub(crate) tail: Option<Count>,
    /// Only what was said since then: a time in RFC 3339, or how long ago, such as 10m
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<Since>,
}
