use rustix::io::Errno;

/// What to do about a step that failed for no lack of the machine's ([`Obstacle`](crate::Obstacle) names those), where that is known.
pub(super) fn hint(step: &str, errno: Errno) -> Option<&'static str> {
    let has = |part: &str| step.contains(part);
    match errno {
        Errno::INVAL if has("mount at") => Some(
            "another file system is mounted below the source, and an ordinary user can't leave it out: mount a folder without one",
        ),
        Errno::LOOP if has("mount at") => Some(
            "a link in this path leads to where nothing may be mounted (to the root, into another mount, or nowhere), or lies in another mount: remove the link, or mount at a path without one",
        ),
        Errno::STALE if has("execute") => {
            Some("something was mounted over the agent: mount at another path, such as one below `/mnt`")
        }
        Errno::NOENT if has("execute") => Some("the agent must be statically linked"),
        _ => None,
    }
}
