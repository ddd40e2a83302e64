//! System calls that `rustix` does not wrap, each behind a safe function or one with a stated contract.
#![expect(unsafe_code, reason = "raw system calls; every block says why it is sound")]

mod btrfs;
mod clone;
mod datagram;
mod exec;
mod fds;
mod identity;
mod inode;
mod kvm;
mod landlock;
mod mount;
mod net;
mod seccomp;

pub(crate) use btrfs::{subvolume_create, subvolume_destroy, subvolume_snapshot};
pub(crate) use clone::{Cloned, clone, exit};
pub(crate) use datagram::{receive_datagram, send_datagram, tell_destinations};
pub(crate) use exec::{exec, exec_at, reset_signals};
pub(crate) use fds::{
    close_all_but_standard, close_from, close_on_exec_from, close_raw, dup_onto, take_inherited,
    unshare_cgroup,
};
pub(crate) use identity::{clear_groups, set_effective, set_ids};
pub(crate) use inode::{InodeAttributes, inode_attributes};
#[cfg(target_arch = "x86_64")]
pub(crate) use kvm::kvm_run_two_instructions;
pub(crate) use kvm::{KVM_API, kvm_api_version, kvm_create_vm};
pub(crate) use landlock::{abi as landlock_abi, confine_to};
pub(crate) use mount::{ATTR_IDMAP, ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, mount_setattr};
pub(crate) use net::loopback_up;
pub(crate) use seccomp::{available as seccomp_available, install as install_filter};
