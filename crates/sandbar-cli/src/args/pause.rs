use clap::Args;

/// Put a sandbox to sleep
///
/// All its processes stop where they are and go on from there with `resume`: memory, open files and connections stay. Meanwhile commands in it, and
/// connections to its ports, are refused; whoever waits for a command that runs already, as `run`, `exec` and `attach` do, waits on until it
/// goes on, is interrupted, or reaches its `--timeout`. What keeps them is this machine's memory: after a restart of the machine only the files are left.
///
/// With `--json`: `{id, processes_preserved, mechanism, detail}`, as observed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar pause demo
  sandbar pause demo --json")]
pub(crate) struct PauseArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Wake a sandbox that sleeps, or start one that is stopped
///
/// One that runs is left as it is. One that is stopped has its files, and its processes are new: its main command is started, if it has one.
///
/// With `--json`: `{id, processes_preserved, mechanism, detail}`, as observed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar resume demo
  sandbar resume demo --json")]
pub(crate) struct ResumeArgs {
    /// Id, unambiguous beginning of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}
