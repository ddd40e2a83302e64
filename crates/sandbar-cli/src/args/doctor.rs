use clap::Args;

/// Say what this machine has and lacks for sandboxes, and what mends it
///
/// Looks at each condition, and tries what can be tried, for real; nothing of it is left. For each that does not hold it says what was seen, which
/// feature or wall is weaker or gone for it, and the command that mends it. Exit code 0: all that sandboxes need is there; 1: something
/// needed is missing; 125: something needed could not be looked at.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar doctor
  sandbar doctor --json")]
pub(crate) struct DoctorArgs {}
