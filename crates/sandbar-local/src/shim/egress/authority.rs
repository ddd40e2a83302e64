use std::sync::Arc;

use sandbar_core::Result;
use sandbar_egress::Interception;
use sandbar_egress::intercept::{Authority, Trust};

use crate::error::io_error;
use crate::home::{Folder, SealedPolicy};

/// Makes the certificate authority of a new sandbox whose policy injects headers, and keeps it: so its programs can be made to trust it before they run.
pub(in crate::shim) fn make(folder: &Folder, policy: Option<&SealedPolicy>) -> Result<Option<Authority>> {
    if !policy.is_some_and(SealedPolicy::intercepts) {
        return Ok(None);
    }
    // Before anything else is made: a machine that trusts nobody can't tell whether it speaks to the host it means.
    Trust::host()?;
    let authority = Authority::generate(folder.id().as_str())?;
    folder
        .keep_authority(&authority.to_sealed())
        .map_err(|cause| io_error("create", "`egress-ca`", cause))?;
    Ok(Some(authority))
}

/// What TLS is intercepted with, where the sandbox has an authority. Its key is here, and never within.
pub(super) fn interception(operation: &'static str, folder: &Folder) -> Result<Option<Interception>> {
    let kept = folder.authority().map_err(|cause| io_error(operation, "`egress-ca`", cause))?;
    let Some(sealed) = kept else { return Ok(None) };
    let authority = Arc::new(Authority::from_sealed(&sealed)?);
    Ok(Some(Interception { authority, trust: Trust::host()? }))
}
