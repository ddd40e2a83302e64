//! What bounds a sandbox, and what bounds us.

use crate::doctor::condition::{Condition, Fault, Mend, Need, Weight};

pub(crate) static CGROUPS: Condition = Condition {
    id: "cgroups",
    title: "control groups for memory, processor time and processes",
    need: Need::Recommended,
    cost: "limits on memory and processes are watched and not enforced, processor time is not limited, and --require-enforced-limits is refused",
    faults: &[
        &CGROUPS_NOT_DELEGATED,
        &CGROUPS_READ_ONLY,
        &CGROUPS_NOT_MOUNTED,
        &CGROUPS_PARTIAL,
        &CGROUPS_REFUSED,
    ],
};
pub(crate) static CGROUPS_NOT_DELEGATED: Fault = Fault {
    id: "cgroups/not-delegated",
    says: "no control group is delegated to this user",
    weight: Weight::Warning,
    mends: &[
        // What is started in that shell has control groups of its own.
        Mend::SystemdUser(
            "systemd-run --user --scope --property=Delegate=yes \"$SHELL\"  # and run sandbar in it",
        ),
        // There is nobody in there to delegate anything; this bounds all sandboxes together.
        Mend::Container("docker run --memory 4g --cpus 2 --pids-limit 2048 IMAGE"),
        Mend::Systemd(
            "sh -c 'mkdir -p /etc/systemd/system/user@.service.d && printf \"[Service]\\nDelegate=cpu memory pids\\n\" \
             > /etc/systemd/system/user@.service.d/sandbar.conf && systemctl daemon-reload'",
        ),
    ],
};
pub(crate) static CGROUPS_READ_ONLY: Fault = Fault {
    id: "cgroups/read-only",
    says: "control groups are mounted, and this process may make none",
    weight: Weight::Warning,
    mends: &[
        Mend::Container("docker run --cgroupns=private --security-opt writable-cgroups=true IMAGE"),
        Mend::Host("mount -o remount,rw /sys/fs/cgroup"),
    ],
};
pub(crate) static CGROUPS_NOT_MOUNTED: Fault = Fault {
    id: "cgroups/not-mounted",
    says: "no control group hierarchy is mounted",
    weight: Weight::Warning,
    mends: &[
        Mend::Host("mount -t cgroup2 cgroup2 /sys/fs/cgroup"),
        Mend::Container("docker run --cgroupns=private --security-opt writable-cgroups=true IMAGE"),
    ],
};
pub(crate) static CGROUPS_PARTIAL: Fault = Fault {
    id: "cgroups/partial",
    says: "control groups can be made, and not all of memory, cpu and pids are among their controllers",
    weight: Weight::Warning,
    mends: &[
        Mend::Systemd(
            "sh -c 'mkdir -p /etc/systemd/system/user@.service.d && printf \"[Service]\\nDelegate=cpu memory pids\\n\" \
             > /etc/systemd/system/user@.service.d/sandbar.conf && systemctl daemon-reload'",
        ),
        Mend::Container("docker run --cgroupns=private --security-opt writable-cgroups=true IMAGE"),
    ],
};
pub(crate) static CGROUPS_REFUSED: Fault = Fault {
    id: "cgroups/refused",
    says: "a control group refused what a sandbox needs of it",
    weight: Weight::Missing,
    mends: &[Mend::User("sandbar doctor"), Mend::Root("ls -ld /sys/fs/cgroup /sys/fs/cgroup/sandbar")],
};

pub(crate) static PROCESSES: Condition = Condition {
    id: "processes",
    title: "room for more processes",
    need: Need::Needed,
    cost: "sandboxes can't be made, or their programs can't start others",
    faults: &[&PROCESSES_USED_UP, &PROCESSES_FEW],
};
pub(crate) static PROCESSES_USED_UP: Fault = Fault {
    id: "processes/used-up",
    says: "there are as many processes and threads as this user, control group or machine may have",
    weight: Weight::Missing,
    mends: &[Mend::User("ulimit -u $(ulimit -H -u)"), Mend::Setting("kernel.pid_max = 4194304")],
};
pub(crate) static PROCESSES_FEW: Fault = Fault {
    id: "processes/few",
    says: "there is room for fewer processes and threads than one sandbox may have by default",
    weight: Weight::Warning,
    mends: &[Mend::User("ulimit -u $(ulimit -H -u)"), Mend::Setting("kernel.pid_max = 4194304")],
};

pub(crate) static NAMESPACES: Condition = Condition {
    id: "namespace-limits",
    title: "room for the namespaces and mounts of many sandboxes",
    need: Need::Needed,
    cost: "no sandbox can be made, or only a few side by side",
    faults: &[&NAMESPACES_OFF, &NAMESPACES_FEW, &MOUNTS_FEW],
};
pub(crate) static NAMESPACES_OFF: Fault = Fault {
    id: "namespace-limits/off",
    says: "a kind of namespaces that a sandbox needs is switched off (a user.max_*_namespaces setting is 0)",
    weight: Weight::Missing,
    mends: &[
        Mend::Setting("user.max_mnt_namespaces = 65536"),
        Mend::Setting("user.max_pid_namespaces = 65536"),
        Mend::Setting("user.max_net_namespaces = 65536"),
        Mend::Setting("user.max_ipc_namespaces = 65536"),
        Mend::Setting("user.max_uts_namespaces = 65536"),
        Mend::Setting("user.max_cgroup_namespaces = 65536"),
    ],
};
pub(crate) static NAMESPACES_FEW: Fault = Fault {
    id: "namespace-limits/few",
    says: "a user.max_*_namespaces setting allows fewer than 100 sandboxes side by side",
    weight: Weight::Warning,
    mends: NAMESPACES_OFF.mends,
};
pub(crate) static MOUNTS_FEW: Fault = Fault {
    id: "namespace-limits/mounts",
    says: "fs.mount-max allows fewer mounts than a sandbox has",
    weight: Weight::Missing,
    mends: &[Mend::Setting("fs.mount-max = 100000")],
};

pub(crate) static INOTIFY: Condition = Condition {
    id: "inotify",
    title: "inotify instances and watches as development servers ask for",
    need: Need::Recommended,
    cost: "file watchers in sandboxes fail early",
    faults: &[&INOTIFY_FEW],
};
pub(crate) static INOTIFY_FEW: Fault = Fault {
    id: "inotify/few",
    says: "a user has fewer inotify instances or watches than development servers ask for",
    weight: Weight::Warning,
    mends: &[
        Mend::Setting("fs.inotify.max_user_watches = 2097152"),
        Mend::Setting("fs.inotify.max_user_instances = 1024"),
    ],
};

pub(crate) static OPEN_FILES: Condition = Condition {
    id: "open-files",
    title: "room for open files",
    need: Need::Needed,
    cost: "sandboxes can't be made, or have room for few connections and descriptors",
    faults: &[&OPEN_FILES_NONE, &OPEN_FILES_FEW],
};
pub(crate) static OPEN_FILES_NONE: Fault = Fault {
    id: "open-files/none",
    says: "this process may open fewer files than a launch needs",
    weight: Weight::Missing,
    mends: &[Mend::User("ulimit -n 1024"), Mend::Container("docker run --ulimit nofile=65536:65536 IMAGE")],
};
pub(crate) static OPEN_FILES_FEW: Fault = Fault {
    id: "open-files/few",
    says: "this process may open fewer files than a sandbox with many connections needs",
    weight: Weight::Warning,
    mends: &[
        Mend::Host("sh -c 'echo \"{user} hard nofile 65536\" > /etc/security/limits.d/60-sandbar.conf'"),
        Mend::Container("docker run --ulimit nofile=65536:65536 IMAGE"),
    ],
};

pub(crate) static FILE_SIZE: Condition = Condition {
    id: "file-size",
    title: "files may be as big as they have to be",
    need: Need::Needed,
    cost: "sandboxes can't be made, or can't write big files",
    faults: &[&FILE_SIZE_NONE, &FILE_SIZE_SMALL],
};
pub(crate) static FILE_SIZE_NONE: Fault = Fault {
    id: "file-size/none",
    says: "the limit on file sizes is below what a sandbox' record and logs need",
    weight: Weight::Missing,
    mends: &[Mend::User("ulimit -f unlimited")],
};
pub(crate) static FILE_SIZE_SMALL: Fault = Fault {
    id: "file-size/small",
    says: "the limit on file sizes is below the disk space that a sandbox has by default",
    weight: Weight::Warning,
    mends: &[Mend::User("ulimit -f unlimited")],
};
