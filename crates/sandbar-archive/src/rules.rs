/// Most members of an archive: four million, twenty times the largest tree that is known to be moved.
pub const MAX_ENTRIES: u64 = 4_000_000;
/// Most bytes of content: 1 TiB, above any disk that a sandbox gets.
pub const MAX_BYTES: u64 = 1 << 40;
/// Longest single name, in bytes: `NAME_MAX` of Linux.
pub const MAX_NAME: usize = 255;
/// Longest path of a member or link target, in bytes: `PATH_MAX` of Linux without its NUL.
pub const MAX_PATH: usize = 4095;
/// Most names in a path: deeper trees are made by accident or to hurt.
pub const MAX_DEPTH: usize = 256;
/// Most bytes of the extended headers of one member: a path, a link target and extended attributes of 64 KiB (`XATTR_SIZE_MAX` of Linux) fit.
pub const MAX_HEADER: u64 = 256 * 1024;
/// Most bytes of zeros after the end marker. GNU tar fills up to a record, which is 10 KiB if nothing else is said and seldom above 1 MiB.
pub const MAX_TRAILING: u64 = 1 << 20;
/// Most bytes that the names of folders may take while rights and times wait for the end, each without what it shares with the one before: they are held in
/// memory, and a budget of 32 MiB has to hold.
pub const MAX_FOLDER_NAMES: usize = 12 << 20;
/// Highest owner id that is restored: the last of the 65,536 ids that a user namespace of a template has.
pub const MAX_ID: u64 = 65_535;

/// What an archive may hold, and what of it is restored. The default is the strict one, for archives that a caller hands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub(crate) names: Names,
    pub(crate) destination: Option<Vec<u8>>,
    pub(crate) owners: Owners,
    pub(crate) privileges: Privileges,
    pub(crate) devices: Special,
    pub(crate) fifos: Special,
    pub(crate) xattrs: Xattrs,
    pub(crate) whiteouts: Whiteouts,
    pub(crate) max_entries: u64,
    pub(crate) max_bytes: u64,
    pub(crate) max_name: usize,
    pub(crate) max_depth: usize,
    pub(crate) max_header: u64,
}

/// Which names members and links may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Absolute names, names that look like an option (a leading `-`) and symbolic links that lead out of the destination are refused: absolute ones, too, but for those that
    /// lead below [`with_destination`](Rules::with_destination).
    Strict,
    /// A root file system: a leading `/` is taken off, and symbolic links may lead anywhere, as they are never followed here.
    Rootfs,
}

/// Whose the members become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Whoever unpacks.
    Caller,
    /// As the archive says, by number. Ids above [`MAX_ID`] are refused.
    FromArchive,
}

/// What becomes of setuid, setgid and sticky bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// All are dropped.
    Drop,
    /// Folders keep the sticky bit, as `/tmp` needs it; all others are dropped.
    KeepSticky,
}

/// What is done with what is no file, folder or link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// The archive is refused.
    Refuse,
    /// The member is left out and counted.
    Skip,
}

/// What is done with extended attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Xattrs {
    /// None is restored.
    Drop,
    /// Those that begin with `user.` are restored, but for the overlay's own.
    UserOnly,
}

/// What names that begin with `.wh.` mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whiteouts {
    /// Nothing special.
    None,
    /// That a layer below has something that is gone: a whiteout and an opaque folder of an overlay that is mounted with `userxattr`.
    Oci,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            names: Names::Strict,
            destination: None,
            owners: Owners::Caller,
            privileges: Privileges::Drop,
            devices: Special::Refuse,
            fifos: Special::Refuse,
            xattrs: Xattrs::UserOnly,
            whiteouts: Whiteouts::None,
            max_entries: MAX_ENTRIES,
            max_bytes: MAX_BYTES,
            max_name: MAX_NAME,
            max_depth: MAX_DEPTH,
            max_header: MAX_HEADER,
        }
    }
}

impl Rules {
    /// For the root file system of a template: owners as in the archive, sticky folders, `user.` attributes; devices and pipes are left out.
    pub fn rootfs() -> Self {
        Self {
            names: Names::Rootfs,
            owners: Owners::FromArchive,
            privileges: Privileges::KeepSticky,
            devices: Special::Skip,
            fifos: Special::Skip,
            ..Self::default()
        }
    }

    /// Which names are allowed.
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Where the destination is for those who will follow links in it: an absolute path. Of absolute links those are taken, too, that lead below it.
    pub fn with_destination(mut self, path: impl Into<Vec<u8>>) -> Self {
        self.destination = Some(path.into());
        self
    }

    /// Whose the members become.
    pub fn with_owners(mut self, owners: Owners) -> Self {
        self.owners = owners;
        self
    }

    /// What becomes of privilege bits.
    pub fn with_privileges(mut self, privileges: Privileges) -> Self {
        self.privileges = privileges;
        self
    }

    /// What is done with devices.
    pub fn with_devices(mut self, devices: Special) -> Self {
        self.devices = devices;
        self
    }

    /// What is done with named pipes.
    pub fn with_fifos(mut self, fifos: Special) -> Self {
        self.fifos = fifos;
        self
    }

    /// What is done with extended attributes.
    pub fn with_xattrs(mut self, xattrs: Xattrs) -> Self {
        self.xattrs = xattrs;
        self
    }

    /// What `.wh.` names mean.
    pub fn with_whiteouts(mut self, whiteouts: Whiteouts) -> Self {
        self.whiteouts = whiteouts;
        self
    }

    /// Most members instead of [`MAX_ENTRIES`].
    pub fn with_max_entries(mut self, entries: u64) -> Self {
        self.max_entries = entries;
        self
    }

    /// Most bytes of content instead of [`MAX_BYTES`].
    pub fn with_max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Longest single name in bytes instead of [`MAX_NAME`].
    pub fn with_max_name(mut self, bytes: usize) -> Self {
        self.max_name = bytes;
        self
    }

    /// Most names in a path instead of [`MAX_DEPTH`].
    pub fn with_max_depth(mut self, names: usize) -> Self {
        self.max_depth = names;
        self
    }

    /// Most bytes of the extended headers of a member instead of [`MAX_HEADER`].
    pub fn with_max_header(mut self, bytes: u64) -> Self {
        self.max_header = bytes;
        self
    }
}
