//! Where sandboxes are kept, and on what kind of machine.

use crate::doctor::condition::{Condition, Fault, Mend, Need, Weight};

pub(crate) static HELPER: Condition = Condition {
    id: "helper",
    title: "the `sandbar` executable, of this version",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&HELPER_MISSING, &HELPER_STRANGE, &HELPER_VERSION],
};
pub(crate) static HELPER_MISSING: Fault = Fault {
    id: "helper/missing",
    says: "the `sandbar` executable is not found",
    weight: Weight::Missing,
    mends: &[Mend::User("cargo build -p sandbar-cli"), Mend::User("export SANDBAR_HELPER=/path/to/sandbar")],
};
pub(crate) static HELPER_STRANGE: Fault = Fault {
    id: "helper/strange",
    says: "what is found in place of the `sandbar` executable is none",
    weight: Weight::Missing,
    mends: &[Mend::User("export SANDBAR_HELPER=/path/to/sandbar")],
};
pub(crate) static HELPER_VERSION: Fault = Fault {
    id: "helper/version",
    says: "the `sandbar` executable is of another version than this program",
    weight: Weight::Warning,
    mends: &[Mend::User("export SANDBAR_HELPER=/path/to/sandbar")],
};

pub(crate) static DATA_FOLDER: Condition = Condition {
    id: "data-folder",
    title: "a data folder that is this user's alone, writable, and lets programs run",
    need: Need::Needed,
    cost: "no sandbox can be made",
    faults: &[&FOLDER_OPEN, &FOLDER_STRANGER, &FOLDER_NONE, &FOLDER_READ_ONLY, &FOLDER_NOEXEC],
};
pub(crate) static FOLDER_OPEN: Fault = Fault {
    id: "data-folder/open-to-others",
    says: "the data folder is open to others",
    weight: Weight::Missing,
    mends: &[Mend::User("chmod 700 {home}")],
};
pub(crate) static FOLDER_STRANGER: Fault = Fault {
    id: "data-folder/of-another",
    says: "the data folder belongs to another user",
    weight: Weight::Missing,
    mends: &[Mend::User("export SANDBAR_HOME=$HOME/.local/share/sandbar")],
};
pub(crate) static FOLDER_NONE: Fault = Fault {
    id: "data-folder/unusable",
    says: "the data folder can't be used",
    weight: Weight::Missing,
    mends: &[Mend::User("export SANDBAR_HOME=$HOME/.local/share/sandbar")],
};
pub(crate) static FOLDER_READ_ONLY: Fault = Fault {
    id: "data-folder/read-only",
    says: "this user can't write where the data folder is, or would be",
    weight: Weight::Missing,
    mends: &[Mend::User("export SANDBAR_HOME=$HOME/.local/share/sandbar")],
};
pub(crate) static FOLDER_NOEXEC: Fault = Fault {
    id: "data-folder/noexec",
    says: "programs can't be run from the file system of the data folder (mounted noexec)",
    weight: Weight::Warning,
    mends: &[
        Mend::Host("mount -o remount,exec $(stat -c %m {parent})"),
        Mend::User("export SANDBAR_HOME=$HOME/.local/share/sandbar"),
    ],
};

pub(crate) static DISK_ROOM: Condition = Condition {
    id: "disk-room",
    title: "room on the disk of the data folder",
    need: Need::Needed,
    cost: "sandboxes can't be made, or run out of disk before their limit",
    faults: &[&DISK_FULL, &DISK_LITTLE],
};
pub(crate) static DISK_FULL: Fault = Fault {
    id: "disk-room/full",
    says: "the disk of the data folder has no room for a sandbox",
    weight: Weight::Missing,
    mends: &[Mend::User("sandbar ls"), Mend::User("du -xh --max-depth=1 {parent} | sort -h")],
};
pub(crate) static DISK_LITTLE: Fault = Fault {
    id: "disk-room/little",
    says: "the disk of the data folder has less room than one sandbox may take by default",
    weight: Weight::Warning,
    mends: &[Mend::User("du -xh --max-depth=1 {parent} | sort -h")],
};

pub(crate) static INODE_ROOM: Condition = Condition {
    id: "inode-room",
    title: "room for more files on the disk of the data folder",
    need: Need::Needed,
    cost: "sandboxes can't be made, or can't make files",
    faults: &[&INODES_NONE, &INODES_FEW],
};
pub(crate) static INODES_NONE: Fault = Fault {
    id: "inode-room/full",
    says: "the file system of the data folder has no inodes left for a sandbox",
    weight: Weight::Missing,
    mends: &[Mend::User("du --inodes -x --max-depth=1 {parent} | sort -n")],
};
pub(crate) static INODES_FEW: Fault = Fault {
    id: "inode-room/few",
    says: "the file system of the data folder has few inodes left",
    weight: Weight::Warning,
    mends: &[Mend::User("du --inodes -x --max-depth=1 {parent} | sort -n")],
};

pub(crate) static CLOCK: Condition = Condition {
    id: "clock",
    title: "a clock that is not years off",
    need: Need::Recommended,
    cost: "deadlines and times in records are wrong, and certificates look expired inside",
    faults: &[&CLOCK_OFF],
};
pub(crate) static CLOCK_OFF: Fault = Fault {
    id: "clock/off",
    says: "the clock is years off",
    weight: Weight::Warning,
    mends: &[
        Mend::Host("timedatectl set-ntp true"),
        Mend::Container("sudo timedatectl set-ntp true  # on the container's host"),
    ],
};

pub(crate) static SURROUNDINGS: Condition = Condition {
    id: "surroundings",
    title: "a Linux kernel of its own, and not somebody's imitation of one",
    need: Need::Recommended,
    cost: "sandboxes are not tried on such a kernel; what works is what the other lines say",
    faults: &[&SURROUNDINGS_GVISOR, &SURROUNDINGS_WSL1],
};
pub(crate) static SURROUNDINGS_GVISOR: Fault = Fault {
    id: "surroundings/gvisor",
    says: "this is gVisor's kernel and not Linux",
    weight: Weight::Warning,
    mends: &[Mend::Host("uname -a"), Mend::Container("docker run --runtime=runc IMAGE")],
};
pub(crate) static SURROUNDINGS_WSL1: Fault = Fault {
    id: "surroundings/wsl1",
    says: "this is version 1 of the Windows subsystem, which has no Linux kernel",
    weight: Weight::Missing,
    mends: &[Mend::User("wsl.exe --set-version $WSL_DISTRO_NAME 2")],
};
