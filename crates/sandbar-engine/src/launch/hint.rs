use rustix::io::Errno;

/// What to do about a step that the kernel refused, where that is known.
pub(super) fn hint(step: &str, errno: Errno) -> Option<&'static str> {
    let has = |part: &str| step.contains(part);
    match errno {
        Errno::PERM | Errno::ACCESS if has("make namespaces") || has("id map") => Some(
            "user namespaces are refused here: check kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns, or a container's security profile",
        ),
        Errno::NOSPC if has("make namespaces") => Some("raise user.max_user_namespaces, or remove sandboxes"),
        Errno::NOSYS if has("make namespaces") => {
            Some("the kernel, or a filter round this process, lacks clone")
        }
        Errno::AGAIN if has("make namespaces") => Some("a process limit of this user or group is reached"),
        Errno::PERM if has("mount proc") => Some(
            "/proc of this container is partly covered; run it with an unmasked /proc (for Docker: --security-opt systempaths=unconfined)",
        ),
        Errno::PERM | Errno::ACCESS if has("loopback") || has("separate mounts") || has("staging") => Some(
            "this user namespace has no rights: an AppArmor profile for the sandbar executable with `userns,` is needed \
             (kernel.apparmor_restrict_unprivileged_userns)",
        ),
        Errno::NODEV | Errno::NOENT if has("mount overlay") => {
            Some("load the kernel module: modprobe overlay")
        }
        Errno::INVAL | Errno::PERM if has("mount overlay") => Some(
            "overlay in a user namespace needs Linux 5.11, with mapped ids 5.19, and a data folder on a file system \
             that is not an overlay itself (ext4, xfs, btrfs, tmpfs)",
        ),
        Errno::INVAL | Errno::OPNOTSUPP if has("map the ids of a mount") => Some(
            "id-mapped mounts need Linux 5.12 and a file system that has them (ext4, xfs, btrfs, tmpfs since 6.3)",
        ),
        Errno::INVAL if has("mount at") => Some(
            "another file system is mounted below the source, and an ordinary user can't leave it out: mount a folder without one",
        ),
        Errno::NOENT if has("execute") => Some("the agent must be statically linked"),
        _ => None,
    }
}
