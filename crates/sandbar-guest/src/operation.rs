use sandbar_core::{Error, ErrorKind};

/// What is being done, for errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name, such as `run`.
    pub name: &'static str,
    /// Whose sandbox it is about.
    pub backend: &'static str,
}

impl Operation {
    /// An operation of that name in that backend.
    pub const fn new(name: &'static str, backend: &'static str) -> Self {
        Self { name, backend }
    }

    /// An error in it.
    pub fn fail(self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, self.name, message).with_backend(self.backend)
    }
}
