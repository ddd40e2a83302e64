use std::sync::Arc;

use sandbar::{Error, ErrorKind, ProviderExt, Query, Sandbox, SandboxId, SandboxProvider};

/// Candidates named in the error for an ambiguous beginning.
const MAX_CANDIDATES: usize = 5;

/// Finds the sandbox that somebody means: by id, else by name, else by the beginning of an id that only one has. `None` means that there is
/// positively no such sandbox.
pub(super) async fn resolve(
    provider: &dyn SandboxProvider,
    text: &str,
    operation: &'static str,
) -> Result<Option<SandboxId>, Error> {
    if let Ok(id) = SandboxId::new(text)
        && provider.describe(&id).await?.is_some()
    {
        return Ok(Some(id));
    }
    if text.is_empty() {
        return Ok(None);
    }
    let records = provider.list_all(Query::new()).await?;
    if let Some(record) =
        records.iter().find(|record| record.name.as_ref().is_some_and(|n| n.as_str() == text))
    {
        return Ok(Some(record.id.clone()));
    }
    let mut begin: Vec<_> =
        records.into_iter().map(|r| r.id).filter(|id| id.as_str().starts_with(text)).collect();
    begin.sort();
    match begin.as_slice() {
        [] => Ok(None),
        [id] => Ok(Some(id.clone())),
        many => {
            let shown: Vec<_> = many.iter().take(MAX_CANDIDATES).map(|id| format!("`{id}`")).collect();
            let more = if many.len() > MAX_CANDIDATES { ", …" } else { "" };
            let message =
                format!("`{text}` is the beginning of {} ids: {}{more}", many.len(), shown.join(", "));
            Err(Error::new(ErrorKind::InvalidInput, operation, message).with_hint("type more of it"))
        }
    }
}

/// A handle on the sandbox that somebody means, which has to exist.
pub(super) async fn require(
    provider: &dyn SandboxProvider,
    text: &str,
    operation: &'static str,
) -> Result<Arc<dyn Sandbox>, Error> {
    let absent = || {
        Error::not_found(operation, format!("sandbox `{text}`")).with_hint("`sandbar ls` shows what exists")
    };
    // The usual case, an id, costs one look.
    if let Ok(id) = SandboxId::new(text)
        && let Some(sandbox) = provider.get(&id).await?
    {
        return Ok(sandbox);
    }
    let id = resolve(provider, text, operation).await?.ok_or_else(absent)?;
    provider.get(&id).await?.ok_or_else(absent)
}
