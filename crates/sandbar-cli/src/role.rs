use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Plays the role that `argv[0]` names (decision 0001) and ends with it; comes back if that is the command line.
pub(crate) fn play() {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    match base_name(&name) {
        b"sandbar-shim" => sandbar_local::shim_main(),
        b"sandbar-agent" => sandbar_agent::main_from_handover(),
        sandbar_agent::ARCHIVE_ROLE => std::process::exit(sandbar_agent::archive_main(args)),
        b"sandbar-worker" => std::process::exit(sandbar_local::worker_main()),
        b"sudo" => std::process::exit(sandbar_agent::sudo_main(args)),
        // By its path in a sandbox nobody but the probe is meant: there is no command line in there.
        b"agent" if args.next().is_some_and(|role| role == sandbar_local::PROBE_NAME) => {
            std::process::exit(sandbar_local::probe_main(args))
        }
        _ => {}
    }
}

fn base_name(name: &OsStr) -> &[u8] {
    name.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_counts() {
        assert_eq!(base_name(OsStr::new("/run/sandbar/sandbar-agent")), b"sandbar-agent");
        assert_eq!(base_name(OsStr::new("sudo")), b"sudo");
        assert_eq!(base_name(OsStr::new("")), b"");
        assert_eq!(base_name(OsStr::new("sudo/")), b"");
    }
}
