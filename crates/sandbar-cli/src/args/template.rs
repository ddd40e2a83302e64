use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sandbar::TemplateId;

use crate::args::{TemplateBuildArgs, TemplateCommitArgs};
use crate::value::contract;

/// Import, build, list and remove templates: file systems that sandboxes boot from
///
/// `run` and `create` boot from one with `-t`. `host`, which is there without being made, is this machine's own programs.
#[derive(Args, Debug)]
#[command(disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  sandbar template import debian rootfs.tar.zst
  docker save app:1 | sandbar template import app -
  sandbar template build app ./context
  sandbar run -t debian -- cat /etc/os-release
  sandbar template ls
  sandbar template rm debian")]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) action: TemplateAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateAction {
    Import(TemplateImportArgs),
    Pull(TemplatePullArgs),
    Build(Box<TemplateBuildArgs>),
    Commit(TemplateCommitArgs),
    Ls(TemplateLsArgs),
    Show(TemplateShowArgs),
    Rm(TemplateRmArgs),
    Export(TemplateExportArgs),
}

/// Make a template of a root file system or an image, and print its id
///
/// SOURCE is a tar archive (plain, gzip or zstd) or a folder, of a root file system or of an OCI image layout; or what `docker save` writes; or `-` for an archive
/// on standard input. One of that id is replaced; sandboxes made from the one before go on as they are. Set-user-id bits and devices are left out, the digests of
/// images are checked, and a user `user` with number 1000 is added where there is none.
///
/// An image's environment, working folder and user hold for its sandboxes, its command only with `--start`.
///
/// With `--json`: `{version, id, reference, created_at, size_bytes, label, in_use}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar template import debian rootfs.tar.zst --label 'bookworm, minimal'
  sandbar template import app ./image --start
  docker save app:1 | sandbar template import app -")]
pub(crate) struct TemplateImportArgs {
    /// Its id: letters, digits, `_`, `.`, `:`, `/` and `-`
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
    /// An archive, a folder, or `-`
    #[arg(value_name = "SOURCE")]
    pub(crate) source: PathBuf,
    /// A word on it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Make the image's own command the main command of sandboxes that are given none
    #[arg(long)]
    pub(crate) start: bool,
    /// Whose the files of a folder become; root's if it is left out
    #[arg(long, value_name = "WHO", value_enum)]
    pub(crate) owner: Option<OwnerArg>,
    /// Which image, by its name and tag, where there are several
    #[arg(long, value_name = "TAG")]
    pub(crate) image: Option<String>,
}

/// Make a template of an image in a registry, and print its id
///
/// As `import` does of what was fetched; layers that are there already are not fetched again. `SANDBAR_REGISTRY_USER` and `SANDBAR_REGISTRY_PASSWORD` log in. A registry on
/// this machine's own loopback address is spoken to without TLS.
///
/// With `--json`: `{version, id, reference, created_at, size_bytes, label, in_use}`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar template pull app registry.example.com/team/app:1")]
pub(crate) struct TemplatePullArgs {
    /// Its id: letters, digits, `_`, `.`, `:`, `/` and `-`
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
    /// The image: `HOST/NAME:TAG` or `HOST/NAME@DIGEST`
    #[arg(value_name = "IMAGE")]
    pub(crate) reference: String,
    /// A word on it
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Make the image's own command the main command of sandboxes that are given none
    #[arg(long)]
    pub(crate) start: bool,
}

/// Whose the files of a folder become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OwnerArg {
    /// All root's
    Root,
    /// All the sandbox' user's
    User,
    /// By number as they are
    Keep,
}

/// List templates
///
/// With `--json`: `{version, templates}`, each of the templates `{id, reference, created_at, size_bytes, label, in_use}`. What is not known of one is `null`; one of
/// which is not known whether a sandbox boots from it is in use.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar template ls
  sandbar template ls --prefix team/ --json")]
pub(crate) struct TemplateLsArgs {
    /// Only those whose id begins with this
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
}

/// Show a template
///
/// What it is made of, the topmost layer first, what it has for sandboxes that say nothing of it, and which boot from it. Exit code 1 means that it positively does not exist.
///
/// With `--json`: `{version, id, reference, created_at, size_bytes, label, in_use, source, over_host, layers, ids, env, workdir, user, start, ready, used_by}`; each of `layers` is
/// `{id, size_bytes}`, `start` and `ready` are arrays of words.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar template show debian")]
pub(crate) struct TemplateShowArgs {
    /// Its id
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
}

/// Remove templates
///
/// One that a sandbox boots from, asleep and stopped ones included, is not removed. Exit code 1 means that one positively did not exist; the others are removed
/// all the same.
///
/// With `--json`: `{version, removed, absent, failed}`, each an array of ids.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar template rm debian")]
pub(crate) struct TemplateRmArgs {
    /// Ids
    #[arg(required = true, value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) ids: Vec<TemplateId>,
}

/// Write a template to standard output, as a tar archive of its root file system
///
/// Owners are those that its files have inside. One that lies over this machine's own programs is refused. An archive that was cut off has no end marker.
///
/// With `--json` it is refused: an archive is no JSON.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sandbar template export debian | zstd > rootfs.tar.zst")]
pub(crate) struct TemplateExportArgs {
    /// Its id
    #[arg(value_name = "ID", value_parser = contract::<TemplateId>)]
    pub(crate) id: TemplateId,
}
