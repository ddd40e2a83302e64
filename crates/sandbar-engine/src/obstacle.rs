use rustix::io::Errno;

/// What of the machine stands in the way of a launch, as far as the failed step and the kernel's answer tell.
///
/// Whoever shows it to a person looks closer: several settings lead to the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Namespaces are switched off by this setting.
    NamespacesOff { setting: &'static str },
    /// The kernel, or a filter round this process, refuses new namespaces or their id maps.
    NamespacesRefused,
    /// They can be made, and give no rights: a security module does that.
    NamespacesPowerless,
    /// There are as many as the settings allow.
    NamespacesUsedUp,
    /// A system call that a launch needs is missing, or hidden by a filter.
    CallMissing,
    /// There are as many processes as this user or group may have.
    ProcessesUsedUp,
    /// `/proc` is partly covered, so the kernel gives no fresh one.
    ProcfsCovered,
    /// The kernel has no overlay file system.
    OverlayMissing,
    /// Overlay is there, and not for user namespaces, or not over this file system.
    OverlayRefused,
    /// The file system knows no id-mapped mounts.
    IdMappedMountsMissing,
    /// Root lacks rights over mounts.
    RootPowerless,
    /// Root here is root of a user namespace that lacks the ids a sandbox needs.
    IdsNotMapped,
    /// `newuidmap` or `newgidmap` is missing or refuses.
    IdMapRefused,
    /// The kernel can't filter system calls.
    FilterMissing,
    /// The kernel can't translate addresses in a network namespace.
    PacketFilterMissing,
    /// Too few descriptors.
    DescriptorsUsedUp,
    /// There are as many mounts as one namespace may have.
    MountsUsedUp,
    /// Control groups are there, and refuse.
    GroupsRefuse,
    /// The disk, or the part of it that this user may have, is full: bytes or inodes.
    DiskFull,
    /// The limit on file sizes.
    FileSize,
}

impl Obstacle {
    /// What the kernel's answer to a step of a launch tells.
    pub(crate) fn of(step: &str, errno: Errno) -> Option<Self> {
        let has = |part: &str| step.contains(part);
        let makes_namespaces = has("make namespaces") || has("make a user namespace");
        let early = has("loopback") || has("separate mounts") || has("staging") || has("host name");
        Some(match errno {
            Errno::INVAL if has("owner id") || has("writable layers") => Self::IdsNotMapped,
            Errno::PERM if has("writable layers") => Self::RootPowerless,
            Errno::INVAL | Errno::PERM if has("id map") => Self::IdsNotMapped,
            Errno::PERM | Errno::ACCESS if makes_namespaces => Self::NamespacesRefused,
            Errno::PERM if has("owner id") => Self::RootPowerless,
            Errno::PERM | Errno::ACCESS if has("make a control group namespace") => Self::NamespacesRefused,
            Errno::NOSPC if makes_namespaces || has("make a control group namespace") => {
                Self::NamespacesUsedUp
            }
            Errno::NOSYS if makes_namespaces => Self::CallMissing,
            Errno::AGAIN if makes_namespaces => Self::ProcessesUsedUp,
            Errno::PERM | Errno::ACCESS if has("take a mount of") => Self::RootPowerless,
            Errno::PERM if has("mount proc") => Self::ProcfsCovered,
            Errno::PERM | Errno::ACCESS if early => Self::NamespacesPowerless,
            Errno::NOSYS if early || has("mount") => Self::CallMissing,
            Errno::NODEV | Errno::NOENT if has("mount overlay") => Self::OverlayMissing,
            Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP if has("mount overlay") => Self::OverlayRefused,
            Errno::INVAL | Errno::OPNOTSUPP if has("map the ids of a mount") => Self::IdMappedMountsMissing,
            Errno::PERM if has("map the ids of a mount") => Self::RootPowerless,
            Errno::INVAL | Errno::NOSYS if has("system call filter") => Self::FilterMissing,
            Errno::NOENT | Errno::OPNOTSUPP | Errno::PROTONOSUPPORT | Errno::INVAL | Errno::PERM
                if has("set up the packet filter") =>
            {
                Self::PacketFilterMissing
            }
            Errno::MFILE | Errno::NFILE => Self::DescriptorsUsedUp,
            Errno::PERM | Errno::ACCESS | Errno::ROFS if has("control group") => Self::GroupsRefuse,
            Errno::NOSPC if has("mount ") => Self::MountsUsedUp,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::FBIG => Self::FileSize,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_answer_means_another_thing_at_another_step() {
        let of = Obstacle::of;
        assert_eq!(of("make namespaces for", Errno::PERM), Some(Obstacle::NamespacesRefused));
        assert_eq!(of("mount proc at /new/proc", Errno::PERM), Some(Obstacle::ProcfsCovered));
        assert_eq!(of("bring the loopback interface up", Errno::PERM), Some(Obstacle::NamespacesPowerless));
        assert_eq!(of("make namespaces for", Errno::NOSPC), Some(Obstacle::NamespacesUsedUp));
        assert_eq!(of("make folder of writable layers", Errno::NOSPC), Some(Obstacle::DiskFull));
        assert_eq!(of("make in the host skeleton", Errno::NOSPC), Some(Obstacle::DiskFull));
        assert_eq!(of("mount tmpfs at /new/dev", Errno::NOSPC), Some(Obstacle::MountsUsedUp));
        assert_eq!(of("mount overlay at /new", Errno::INVAL), Some(Obstacle::OverlayRefused));
        assert_eq!(of("mount overlay at /new", Errno::NODEV), Some(Obstacle::OverlayMissing));
        assert_eq!(of("set up the packet filter", Errno::NOENT), Some(Obstacle::PacketFilterMissing));
        assert_eq!(of("execute /x", Errno::NOENT), None);
    }
}
