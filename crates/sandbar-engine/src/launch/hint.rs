use rustix::io::Errno;

/// What to do about a step that failed for no lack of the machine's ([`Obstacle`](crate::Obstacle) names those), where that is known.
pub(super) fn hint(step: &str, errno: Errno) -> Option<&'static str> {
    let has = |part: &str| step.contains(part);
    match errno {
        Errno::INVAL if has("mount at") => Some(
            "another file system is mounted below the source, and an ordinary user can't leave it out: mount a folder without one",
        ),
        Errno::NOENT if has("execute") => Some("the agent must be statically linked"),
        _ => None,
    }
}
