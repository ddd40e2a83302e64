use std::borrow::Cow;
use std::fmt;
use std::io;

use crate::obstacle::Obstacle;

/// What the engine could not do, to what, and why.
///
/// `Display` prints operation, resource and cause, and the hint where there is a remedy.
#[derive(Debug)]
pub struct Error {
    operation: Cow<'static, str>,
    resource: String,
    cause: Cause,
    hint: Option<Cow<'static, str>>,
    obstacle: Option<Obstacle>,
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
        let (operation, cause) = (operation.into(), cause.into());
        let errno = rustix::io::Errno::from_io_error(&cause);
        let obstacle = errno.and_then(|errno| Obstacle::of(&operation, errno));
        Self { operation, resource: resource.into(), cause: Cause::Io(cause), hint: None, obstacle }
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
            obstacle: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_obstacle(mut self, obstacle: Obstacle) -> Self {
        self.obstacle = Some(obstacle);
        self
    }

    /// What of the machine stands in the way, where the step and the kernel's answer tell.
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
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

    /// Whether the kernel said that the caller may not.
    pub fn is_refused(&self) -> bool {
        matches!(self.errno(), Some(libc::EACCES | libc::EPERM))
    }

    /// Whether a link leads the target of a mount that was asked for to where nothing may be mounted.
    pub fn is_refused_by_link(&self) -> bool {
        self.errno() == Some(libc::ELOOP) && self.operation.contains("mount at ")
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
