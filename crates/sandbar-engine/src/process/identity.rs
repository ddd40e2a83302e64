use std::io;

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

/// The bit set of capabilities given by name (`CAP_CHOWN`, in any case).
pub fn capability_mask<S: AsRef<str>>(names: &[S]) -> io::Result<u64> {
    names.iter().try_fold(0, |mask, name| {
        let name = name.as_ref().to_ascii_uppercase();
        let capability: caps::Capability = name.parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` is not the name of a capability"))
        })?;
        Ok(mask | capability.bitmask())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_bits() {
        assert_eq!(capability_mask(&["CAP_CHOWN", "cap_kill"]).unwrap(), 0b10_0001);
        assert!(capability_mask(&["CAP_NONSENSE"]).unwrap_err().to_string().contains("CAP_NONSENSE"));
    }
}
