//! What a sandbox is made of.

use crate::doctor::condition::{Condition, Fault, Mend, Need, Package, Weight};

const KERNEL_PACKAGE: Package = Package {
    debian: "'^linux-image-(generic|amd64|arm64)$'",
    fedora: "kernel",
    arch: "linux",
    alpine: "linux-lts",
    suse: "kernel-default",
};
const UIDMAP: Package = Package {
    debian: "uidmap",
    fedora: "shadow-utils",
    arch: "shadow",
    alpine: "shadow-uidmap",
    suse: "shadow",
};
/// How a container has to be started that sandboxes are made in; `docs/containers.md` says why.
const START_CONTAINER: Mend = Mend::Container(
    "docker run --user 1000:1000 --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
     --security-opt systempaths=unconfined IMAGE",
);

pub(crate) static KERNEL: Condition = Condition {
    id: "kernel",
    title: "a kernel that has the calls of a launch (Linux 5.12, for root 5.19)",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&KERNEL_OLD, &KERNEL_CALLS],
};
pub(crate) static KERNEL_OLD: Fault = Fault {
    id: "kernel/too-old",
    says: "the kernel is older than what a launch needs",
    weight: Weight::Missing,
    mends: &[Mend::Package(&KERNEL_PACKAGE), Mend::Root("reboot")],
};
pub(crate) static KERNEL_CALLS: Fault = Fault {
    id: "kernel/call-hidden",
    says: "a system call of a launch is missing, or hidden by a filter round this process",
    weight: Weight::Missing,
    mends: &[
        START_CONTAINER,
        Mend::Systemd("systemctl show --property=SystemCallFilter,RestrictNamespaces user@{uid}.service"),
        Mend::HostUser(
            "grep -s '^Seccomp:.*2' /proc/[0-9]*/status  # run it from outside of these processes",
        ),
    ],
};

pub(crate) static USER_NAMESPACES: Condition = Condition {
    id: "user-namespaces",
    title: "user namespaces, and rights in them",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[
        &USERNS_OFF,
        &USERNS_UNPRIVILEGED,
        &USERNS_APPARMOR,
        &USERNS_FILTERED,
        &USERNS_CHROOT,
        &USERNS_REFUSED,
        &USERNS_USED_UP,
        &USERNS_NOT_BUILT,
    ],
};
pub(crate) static USERNS_OFF: Fault = Fault {
    id: "user-namespaces/off",
    says: "user namespaces are switched off (user.max_user_namespaces is 0)",
    weight: Weight::Missing,
    mends: &[Mend::Setting("user.max_user_namespaces = 65536")],
};
pub(crate) static USERNS_UNPRIVILEGED: Fault = Fault {
    id: "user-namespaces/root-only",
    says: "user namespaces are for root only (kernel.unprivileged_userns_clone is 0)",
    weight: Weight::Missing,
    mends: &[Mend::Setting("kernel.unprivileged_userns_clone = 1")],
};
pub(crate) static USERNS_APPARMOR: Fault = Fault {
    id: "user-namespaces/apparmor",
    says: "user namespaces give no rights without an AppArmor profile (kernel.apparmor_restrict_unprivileged_userns is 1)",
    weight: Weight::Missing,
    mends: &[
        Mend::Host(
            "sh -c 'printf \"abi <abi/4.0>,\\nprofile sandbar %s flags=(unconfined) {\\n  userns,\\n}\\n\" {helper} \
             > /etc/apparmor.d/sandbar && apparmor_parser -r /etc/apparmor.d/sandbar'",
        ),
        START_CONTAINER,
    ],
};
pub(crate) static USERNS_FILTERED: Fault = Fault {
    id: "user-namespaces/filtered",
    says: "a system call filter round this process refuses what a sandbox is made with",
    weight: Weight::Missing,
    mends: &[
        START_CONTAINER,
        Mend::Systemd("systemctl show --property=SystemCallFilter,RestrictNamespaces user@{uid}.service"),
        Mend::HostUser(
            "grep -s '^Seccomp:.*2' /proc/[0-9]*/status  # run it from outside of these processes",
        ),
    ],
};
pub(crate) static USERNS_CHROOT: Fault = Fault {
    id: "user-namespaces/chroot",
    says: "this process is in a chroot, and the kernel makes no user namespaces there",
    weight: Weight::Missing,
    mends: &[Mend::Root(
        "unshare --mount --propagation private sh -c 'mount --rbind NEWROOT NEWROOT && cd NEWROOT && mkdir -p .old && pivot_root . .old && exec sh'",
    )],
};
pub(crate) static USERNS_REFUSED: Fault = Fault {
    id: "user-namespaces/refused",
    says: "the kernel refuses user namespaces to this process, for a reason that no setting shows (a chroot, or a security module)",
    weight: Weight::Missing,
    mends: &[START_CONTAINER, Mend::Host("dmesg --level=err,warn,notice,info --since=-1min")],
};
pub(crate) static USERNS_USED_UP: Fault = Fault {
    id: "user-namespaces/used-up",
    says: "there are as many namespaces as a user.max_*_namespaces setting allows, here or in a namespace round this one",
    weight: Weight::Missing,
    mends: &[Mend::Setting("user.max_user_namespaces = 65536"), Mend::User("sandbar ls")],
};
pub(crate) static USERNS_NOT_BUILT: Fault = Fault {
    id: "user-namespaces/not-built",
    says: "the kernel was built without user namespaces (CONFIG_USER_NS)",
    weight: Weight::Missing,
    mends: &[Mend::Package(&KERNEL_PACKAGE), Mend::Root("reboot")],
};

pub(crate) static ROOT_RIGHTS: Condition = Condition {
    id: "root-rights",
    title: "root has root's rights here, or this is an ordinary user",
    need: Need::Needed,
    cost: "root can make no sandbox; an ordinary user can",
    faults: &[&ROOT_CAPABILITIES, &ROOT_IDS],
};
pub(crate) static ROOT_CAPABILITIES: Fault = Fault {
    id: "root-rights/capabilities",
    says: "root lacks capabilities here that making a sandbox as root takes",
    weight: Weight::Missing,
    mends: &[
        START_CONTAINER,
        Mend::Root(
            "setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all env HOME=/tmp sandbar doctor",
        ),
    ],
};
pub(crate) static ROOT_IDS: Fault = Fault {
    id: "root-rights/ids",
    says: "root here is root of a user namespace that has no ids to spare for sandboxes",
    weight: Weight::Missing,
    mends: &[
        START_CONTAINER,
        Mend::Host(
            "setpriv --reuid=1000 --regid=1000 --clear-groups --inh-caps=-all env HOME=/tmp sandbar doctor",
        ),
    ],
};

pub(crate) static PROCFS: Condition = Condition {
    id: "procfs",
    title: "a fresh /proc can be mounted",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&PROCFS_COVERED],
};
pub(crate) static PROCFS_COVERED: Fault = Fault {
    id: "procfs/covered",
    says: "/proc is partly covered here, so the kernel gives no fresh one",
    weight: Weight::Missing,
    mends: &[START_CONTAINER, Mend::Host("umount {covers}")],
};

pub(crate) static OVERLAY: Condition = Condition {
    id: "overlay",
    title: "overlay in user namespaces, on the file system of the data folder",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&OVERLAY_MISSING, &OVERLAY_ON_OVERLAY, &OVERLAY_REFUSED],
};
pub(crate) static OVERLAY_MISSING: Fault = Fault {
    id: "overlay/missing",
    says: "the kernel has no overlay file system loaded",
    weight: Weight::Missing,
    mends: &[
        Mend::Host("modprobe overlay"),
        Mend::Container("sudo modprobe overlay  # on the container's host"),
    ],
};
pub(crate) static OVERLAY_ON_OVERLAY: Fault = Fault {
    id: "overlay/on-overlay",
    says: "the data folder is on an overlay itself, and one does not bear another's writable layer",
    weight: Weight::Missing,
    mends: &[
        Mend::Container("docker run --volume sandbar:/sandbar --env SANDBAR_HOME=/sandbar/data IMAGE"),
        Mend::Host("mount -t tmpfs -o mode=1777 sandbar /mnt"),
        Mend::HostUser("export SANDBAR_HOME=/mnt/sandbar"),
    ],
};
pub(crate) static OVERLAY_REFUSED: Fault = Fault {
    id: "overlay/refused",
    says: "the kernel refuses an overlay in a user namespace, or over the file system of the data folder",
    weight: Weight::Missing,
    mends: &[
        Mend::Container("docker run --volume sandbar:/sandbar --env SANDBAR_HOME=/sandbar/data IMAGE"),
        Mend::Host("mount -t tmpfs -o mode=1777 sandbar /mnt"),
        Mend::HostUser("export SANDBAR_HOME=/mnt/sandbar"),
    ],
};

pub(crate) static MAPPED_MOUNTS: Condition = Condition {
    id: "id-mapped-mounts",
    title: "id-mapped mounts on the file systems of the data folder and of /usr (as root only)",
    need: Need::Needed,
    cost: "root can make no sandbox; an ordinary user can",
    faults: &[&MAPPED_MOUNTS_MISSING, &MAPPED_PROGRAMS],
};
pub(crate) static MAPPED_MOUNTS_MISSING: Fault = Fault {
    id: "id-mapped-mounts/missing",
    says: "the file system knows no id-mapped mounts",
    weight: Weight::Missing,
    mends: &[
        Mend::Container(
            "docker run --user 1000:1000 --volume sandbar:/sandbar --env SANDBAR_HOME=/sandbar/data IMAGE",
        ),
        Mend::Root("mount -t tmpfs -o mode=1777 sandbar /mnt"),
        Mend::HostUser("export SANDBAR_HOME=/mnt/sandbar"),
    ],
};

pub(crate) static MAPPED_PROGRAMS: Fault = Fault {
    id: "id-mapped-mounts/programs",
    says: "the file system of /usr knows no id-mapped mounts, as overlay does not",
    weight: Weight::Missing,
    mends: ROOT_IDS.mends,
};

pub(crate) static SECCOMP: Condition = Condition {
    id: "seccomp",
    title: "system calls can be filtered",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&SECCOMP_MISSING],
};
pub(crate) static SECCOMP_MISSING: Fault = Fault {
    id: "seccomp/missing",
    says: "this kernel can't filter system calls",
    weight: Weight::Missing,
    mends: &[Mend::Package(&KERNEL_PACKAGE), Mend::Root("reboot")],
};

pub(crate) static LANDLOCK: Condition = Condition {
    id: "landlock",
    title: "Landlock, version 6 or later",
    need: Need::Recommended,
    cost: "a sandbox with a single id lacks the second wall round the files of the user who runs it",
    faults: &[&LANDLOCK_MISSING, &LANDLOCK_OLD],
};
pub(crate) static LANDLOCK_MISSING: Fault = Fault {
    id: "landlock/missing",
    says: "this kernel has no Landlock, or it is not switched on",
    weight: Weight::Warning,
    mends: &[
        Mend::Root(
            "sh -c 'sed -i \"s/^GRUB_CMDLINE_LINUX=./&lsm=landlock,$(cat /sys/kernel/security/lsm) /\" /etc/default/grub \
             && (update-grub || grub2-mkconfig -o /boot/grub2/grub.cfg)'",
        ),
        Mend::Root("reboot"),
    ],
};
pub(crate) static LANDLOCK_OLD: Fault = Fault {
    id: "landlock/old",
    says: "this kernel's Landlock does not keep signals and abstract sockets apart (version below 6)",
    weight: Weight::Warning,
    mends: &[Mend::Package(&KERNEL_PACKAGE), Mend::Root("reboot")],
};

pub(crate) static SUBORDINATE_IDS: Condition = Condition {
    id: "subordinate-ids",
    title: "subordinate ids for this user (root has ids of its own)",
    need: Need::Recommended,
    cost: "sandboxes have a single id, this user's own: no root inside, no `sudo`, and no file of another owner",
    faults: &[&SUBIDS_TOOLS, &SUBIDS_POWERLESS, &SUBIDS_NONE, &SUBIDS_REFUSED],
};
pub(crate) static SUBIDS_TOOLS: Fault = Fault {
    id: "subordinate-ids/tools",
    says: "newuidmap and newgidmap are not installed",
    weight: Weight::Warning,
    mends: &[Mend::Package(&UIDMAP)],
};
pub(crate) static SUBIDS_POWERLESS: Fault = Fault {
    id: "subordinate-ids/powerless",
    says: "newuidmap or newgidmap has neither the setuid bit nor a file capability, or this process may gain no rights",
    weight: Weight::Missing,
    mends: &[Mend::Root("chmod u+s /usr/bin/newuidmap /usr/bin/newgidmap")],
};
pub(crate) static SUBIDS_NONE: Fault = Fault {
    id: "subordinate-ids/none",
    says: "this user has no range of at least 1000 ids in both /etc/subuid and /etc/subgid",
    weight: Weight::Warning,
    mends: &[Mend::Root("usermod --add-subuids {ids} --add-subgids {ids} {user}")],
};
pub(crate) static SUBIDS_REFUSED: Fault = Fault {
    id: "subordinate-ids/refused",
    says: "newuidmap or newgidmap refuses this user's subordinate ids",
    weight: Weight::Missing,
    mends: &[
        // As setuid programs they would need more capabilities than a container's root has.
        Mend::Container(
            "chmod u-s /usr/bin/newuidmap /usr/bin/newgidmap && setcap cap_setuid+ep /usr/bin/newuidmap \
             && setcap cap_setgid+ep /usr/bin/newgidmap  # as root, in the image",
        ),
        Mend::Host("usermod --add-subuids {ids} --add-subgids {ids} {user}"),
    ],
};
