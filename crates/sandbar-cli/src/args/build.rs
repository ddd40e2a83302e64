use std::path::PathBuf;

use clap::Args;
use sandbar::{GuestPath, TemplateId};

use crate::args::PolicyArgs;
use crate::value::{HumanDuration, contract};

/// Build a template from a build file, and print its id
///
/// FILE has an instruction a line: `RUN`, `COPY`, `ENV`, `WORKDIR`, `USER`, `START`; docs/builds.md has them. Each step that changes files runs in a
/// sandbox of its own, without a network unless an option allows one, and is not done again while nothing of what it depends on changed. What it says is shown on standard error. One of
/// that id is replaced at the end; a step that fails makes none and replaces none.
///
/// With `--json`: an object a line, `{version, step: {number, of, text, cached}}`, `{version, line}`, and at the end the template,
/// `{version, id, reference, created_at, size_bytes, label, in_use}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar template build app
  sandbar template build app -f Buildfile ./context --label 'node 20'
  sandbar template build tools --base debian --allow deb.example.org --no-cache")]
pub(crate) struct TemplateBuildArgs {
    /// Its id: letters, digits, `_`, `.`, `:`, `/` and `-`
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
    /// The folder that `COPY` copies from [default: the current one]
    #[arg(value_name = "CONTEXT")]
    pub(crate) context: Option<PathBuf>,
    /// The build file [default: `Buildfile` in CONTEXT]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The template that it is built over [default: the backend's own; `local`: `host`]
    #[arg(long, value_name = "TEMPLATE", value_parser = contract::<TemplateId>)]
    pub(crate) base: Option<TemplateId>,
    /// A word on it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Do each step, whatever is known of it
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// How long each step may take, such as 90s or 10m [default: the backend's own bound; `local`: 1h]
    #[arg(long, value_name = "DURATION")]
    pub(crate) step_timeout: Option<HumanDuration>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
}

/// Make a template of what a sandbox has on disk, and print its id
///
/// The sandbox stands still for the copy, and goes on; one that sleeps or is stopped stays so. What is mounted in it is not captured, nor what it alone may
/// have: its name, number, environment and certificate authority. Files keep their modes without setuid and setgid. One of that id is replaced; sandboxes made from the one before go on
/// as they are. What programs wrote into files, secrets too, comes along.
///
/// With `--json`: `{version, id, reference, created_at, size_bytes, label, in_use}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar template commit demo app
  sandbar template commit demo app --capture-path /home/user/app --label 'with packages'")]
pub(crate) struct TemplateCommitArgs {
    /// Id of the sandbox, unambiguous beginning of an id, or name
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,
    /// The template's id: letters, digits, `_`, `.`, `:`, `/` and `-`
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
    /// A path that has to be in it; may be given again
    ///
    /// One that does not exist, or that is on or holds something mounted, is an error, and nothing is made.
    #[arg(long = "capture-path", value_name = "PATH", value_parser = contract::<GuestPath>)]
    pub(crate) capture_paths: Vec<GuestPath>,
    /// A word on it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}
