use clap::Args;

use crate::value::AuditFile;

/// Show the audit record
///
/// What was done to sandboxes, oldest first, by whom and how it ended, from all files of the record. Torn lines (a writer was killed in its
/// middle) are counted on stderr. With `--json`: one event a line, as docs/audit.md says.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar audit --follow
  sandbar audit --id demo-1 --json /var/log/sandbar/audit.jsonl | jq .op")]
pub(crate) struct AuditArgs {
    /// The record's file, or `default` [default: what `--audit` or `SANDBAR_AUDIT` names, else `default`]
    #[arg(value_name = "FILE", value_parser = clap::value_parser!(AuditFile))]
    pub(crate) file: Option<AuditFile>,
    /// Go on with what is written from now on, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what concerns the sandbox with this id or beginning of an id
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}
