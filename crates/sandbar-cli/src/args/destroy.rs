use clap::Args;

/// End sandboxes and remove all they held
///
/// Exit code 1 means that one positively did not exist; the others are destroyed all the same.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  sandbar destroy demo 3f9a")]
pub(crate) struct DestroyArgs {
    /// Ids, unambiguous beginnings of ids, or names
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
}
