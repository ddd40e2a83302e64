//! The certificate authority of a sandbox on disk, with its key: mode 0600 in a folder of mode 0700. It is there where the sandbox was made with a policy that
//! injects headers.

use std::io;

use sandbar_egress::intercept::SealedAuthority;

use super::Folder;

/// The file.
const AUTHORITY: &str = "egress-ca";
/// Longest file that is read, in bytes: a key and a certificate take less than 1 KiB.
const MAX_AUTHORITY: usize = 64 << 10;

impl Folder {
    /// The sealed authority that was kept; `None` means that there is positively none.
    pub(crate) fn authority(&self) -> io::Result<Option<Vec<u8>>> {
        self.read_file(AUTHORITY, MAX_AUTHORITY)
    }

    /// Keeps the authority.
    pub(crate) fn keep_authority(&self, sealed: &SealedAuthority) -> io::Result<()> {
        self.replace_file(AUTHORITY, sealed.reveal(), MAX_AUTHORITY)
    }
}
