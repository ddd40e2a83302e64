/// Whom a new process runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// The same ids as its starter. The only choice where a single id is mapped.
    #[default]
    Keep,
    /// Other ids; the starter needs the right to change them.
    Set {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Supplementary groups.
        groups: Vec<u32>,
    },
}

/// Capabilities of a new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Capabilities {
    /// None, and none to be had by executing something, as far as the starter may lower its bounding set.
    #[default]
    None,
    /// At most these, as a bit set by capability number.
    AtMost(u64),
    /// Those of its starter.
    Inherit,
}
