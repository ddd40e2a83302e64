//! What root inside a sandbox may do. All of it is relative to the sandbox's own user namespace.

/// A capability by name and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    pub name: &'static str,
    pub number: u8,
}

/// The whole list. Not on it, though container engines give it: `CAP_NET_RAW` (the filter refuses raw sockets),
/// `CAP_MKNOD` (no devices in a user namespace), `CAP_AUDIT_WRITE` (the audit socket answers the host only). Not on it
/// for what they open: `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN`, `CAP_NET_ADMIN`.
pub const SANDBOX_ROOT: &[Capability] = &[
    // Install and unpack files of any owner.
    Capability { name: "CAP_CHOWN", number: 0 },
    Capability { name: "CAP_DAC_OVERRIDE", number: 1 },
    Capability { name: "CAP_FOWNER", number: 3 },
    Capability { name: "CAP_FSETID", number: 4 },
    Capability { name: "CAP_SETFCAP", number: 31 },
    // End processes of any user.
    Capability { name: "CAP_KILL", number: 5 },
    // Become another user, as daemons and the agent do.
    Capability { name: "CAP_SETGID", number: 6 },
    Capability { name: "CAP_SETUID", number: 7 },
    // Give up capabilities for good: the agent does it for `user`.
    Capability { name: "CAP_SETPCAP", number: 8 },
    // Listen below 1024.
    Capability { name: "CAP_NET_BIND_SERVICE", number: 10 },
    // Package installers.
    Capability { name: "CAP_SYS_CHROOT", number: 18 },
];

/// The highest capability that Linux knows (`CAP_CHECKPOINT_RESTORE`), which bounds the sets to clear; a kernel with
/// more is asked until it says that there is none.
pub(crate) const LAST_KNOWN: u8 = 40;

/// The set as the kernel writes it.
pub fn mask(list: &[Capability]) -> u64 {
    list.iter().fold(0, |mask, capability| mask | 1 << capability.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_opens_the_kernel() {
        // NET_ADMIN 12, NET_RAW 13, SYS_MODULE 16, SYS_RAWIO 17, SYS_PTRACE 19, SYS_ADMIN 21, SYS_BOOT 22, MKNOD 27,
        // MAC_ADMIN 33, BPF 39.
        for number in [12, 13, 16, 17, 19, 21, 22, 27, 33, 39] {
            assert_eq!(mask(SANDBOX_ROOT) >> number & 1, 0, "{number}");
        }
        assert_eq!(mask(SANDBOX_ROOT), 0x8004_05fb);
    }
}
