use std::borrow::Cow;
use std::fmt;
use std::io;

/// What the engine could not do, to what, and why.
///
/// `Display` prints operation, resource and cause, and the hint where there is a remedy.
#[derive(Debug)]
pub struct Error {
    operation: Cow<'static, str>,
    resource: String,
    cause: Cause,
    hint: Option<Cow<'static, str>>,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Reason(String),
}

impl Error {
    pub(crate) fn io(
        operation: impl Into<Cow<'static, str>>,
        resource: impl Into<String>,
        cause: impl Into<io::Error>,
    ) -> Self {
        Self {
            operation: operation.into(),
            resource: resource.into(),
            cause: Cause::Io(cause.into()),
            hint: None,
        }
    }

    pub(crate) fn reason(
        operation: impl Into<Cow<'static, str>>,
        resource: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            operation: operation.into(),
            resource: resource.into(),
            cause: Cause::Reason(reason.into()),
            hint: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The step that did not work, as a verb phrase.
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// What it was done to.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// How to get past it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The kernel's error number, where the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match &self.cause {
            Cause::Io(cause) => cause.raw_os_error(),
            Cause::Reason(_) => None,
        }
    }

    /// Whether the kernel said that the thing is not there.
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if !self.resource.is_empty() {
            write!(f, " `{}`", self.resource.escape_debug())?;
        }
        match &self.cause {
            Cause::Io(cause) => write!(f, ": {cause}")?,
            Cause::Reason(reason) => write!(f, ": {reason}")?,
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Io(cause) => Some(cause),
            Cause::Reason(_) => None,
        }
    }
}
