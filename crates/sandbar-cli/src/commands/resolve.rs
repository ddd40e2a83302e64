use std::sync::Arc;

use sandbar::{Error, ErrorKind, ProviderExt, Query, Sandbox, SandboxId, SandboxProvider, SandboxRecord};

use crate::exit::ExitStatus;
use crate::failure::Failure;
use crate::value::is_shaped_like_an_id;

/// Candidates named in the error for what could mean several.
const MAX_CANDIDATES: usize = 5;

/// Finds the sandbox that somebody means: by id, else by its name, else by the beginning of an id, if that is one sandbox. `None` means that
/// there is positively no such sandbox. What is shaped like an id is one: where it is gone, nothing else is meant, whatever its name is.
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
    if text.is_empty() || is_shaped_like_an_id(text) {
        return Ok(None);
    }
    let is_named = |record: &SandboxRecord| record.name.as_ref().is_some_and(|name| name.as_str() == text);
    let mut meant = provider.list_all(Query::new()).await?;
    // A whole name is no beginning of something else: else whoever makes a sandbox could take the name of another away.
    if meant.iter().any(is_named) {
        meant.retain(is_named);
    } else {
        meant.retain(|record| record.id.as_str().starts_with(text));
    }
    meant.sort_by_key(|record| record.id.clone());
    match meant.as_slice() {
        [] => Ok(None),
        [record] => Ok(Some(record.id.clone())),
        many => {
            let name = |record: &SandboxRecord| format!("`{}`", record.id);
            let shown: Vec<_> = many.iter().take(MAX_CANDIDATES).map(name).collect();
            let more = if many.len() > MAX_CANDIDATES { ", …" } else { "" };
            let message = format!("`{text}` could be any of {}: {}{more}", many.len(), shown.join(", "));
            Err(Error::new(ErrorKind::InvalidInput, operation, message).with_hint("type more of the id"))
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

/// What is positively absent has an exit code of its own (decision 0003).
pub(super) fn absent(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::new(ExitStatus::Absent, error),
        _ => error.into(),
    }
}

/// As [`require`], for commands that have a code of their own for what positively is not there.
pub(super) async fn require_or_absent(
    provider: &dyn SandboxProvider,
    text: &str,
    operation: &'static str,
) -> Result<Arc<dyn Sandbox>, Failure> {
    require(provider, text, operation).await.map_err(absent)
}

#[cfg(test)]
mod tests {
    use sandbar::{CreateOptions, MemoryProvider, SandboxName};

    use super::*;

    async fn create(provider: &MemoryProvider, name: &str) -> SandboxId {
        let options = CreateOptions { name: Some(SandboxName::new(name).unwrap()), ..CreateOptions::new() };
        provider.create(options).await.unwrap().id().clone()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_id_that_is_gone_means_no_other_sandbox() {
        let provider = MemoryProvider::new();
        // A library user may give such a name.
        let gone = "s0123456789abcdefghj";
        create(&provider, gone).await;
        assert_eq!(resolve(&provider, gone, "destroy").await.unwrap(), None);
        assert_eq!(require(&provider, gone, "exec").await.err().unwrap().kind(), ErrorKind::NotFound);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_name_goes_before_the_beginning_of_an_id() {
        let provider = MemoryProvider::new();
        let first = create(&provider, "first").await;
        let beginning = &first.as_str()[..first.as_str().len() - 1];
        assert_eq!(resolve(&provider, beginning, "destroy").await.unwrap(), Some(first.clone()));
        let second = create(&provider, beginning).await;
        assert_eq!(resolve(&provider, beginning, "destroy").await.unwrap(), Some(second));
        assert_eq!(resolve(&provider, first.as_str(), "destroy").await.unwrap(), Some(first.clone()));
        assert_eq!(resolve(&provider, "first", "destroy").await.unwrap(), Some(first));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_begins_several_ids_is_ambiguous() {
        let provider = MemoryProvider::new();
        let (first, second) = (create(&provider, "first").await, create(&provider, "second").await);
        let both = first.as_str().chars().zip(second.as_str().chars());
        let beginning: String = both.take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
        let error = resolve(&provider, &beginning, "destroy").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(&format!("`{second}`")) && text.contains(&format!("`{first}`")), "{text}");
    }
}
