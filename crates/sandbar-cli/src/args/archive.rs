use clap::Args;

use crate::value::GuestPlace;

/// Unpack a tar archive from standard input into a folder of a sandbox
///
/// The archive may be in gzip or zstd. `/` is refused. The folder is made where it does not exist; folders that are there are merged, files replaced. Everything belongs to the
/// sandbox's default user, whatever the archive says; privilege bits are dropped.
///
/// Rights, times, hard links and the extended attributes of users (`user.`) are kept, other attributes are not.
///
/// All or nothing: it is unpacked aside and put in its place when it is whole. What is cut short, fails or is interrupted leaves nothing. Refused are names
/// and links that lead out of the folder, names that look like an option (a `-` at their start), devices and pipes.
///
/// With `--json`: `{version, entries, bytes, duration}`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tar -c -C app . | sandbar import demo:/home/user/app
  sandbar import demo:/tmp/site < site.tar.zst")]
pub(crate) struct ImportArgs {
    /// The folder to unpack into
    #[arg(value_name = "ID:/PATH", value_parser = GuestPlace::parser())]
    pub(crate) to: GuestPlace,
}

/// Pack a folder or file of a sandbox into a tar archive on standard output
///
/// Its members begin with the last name of the path, and are in the order of their names. Owners are left out; so are set-user-id, set-group-id and sticky bits, sockets, pipes and devices. Hard links are kept, parts of a second and the extended attributes of users (`user.`) too.
///
/// What can't be read to its end, a file that becomes shorter meanwhile, is an error, and the archive then lacks its end marker.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sandbar export demo:/home/user/app > app.tar
  sandbar export demo:/home/user/app | tar -x
  sandbar export one:/home/user/app | sandbar import other:/home/user")]
pub(crate) struct ExportArgs {
    /// What to pack
    #[arg(value_name = "ID:/PATH", value_parser = GuestPlace::parser())]
    pub(crate) from: GuestPlace,
}
