use std::sync::Arc;

use sandbar_core::{CommitOptions, ErrorKind, Result};

use super::{Captured, capture};
use crate::error::fail;
use crate::home::Home;
use crate::provider::Inner;
use crate::store::{Boot, Hold, LayerDocument, StoreLock, TemplateDocument};
use crate::template;

const COMMIT: &str = "commit";
/// Longest word on a template, in bytes: it is shown in a table.
const MAX_LABEL: usize = 4096;

/// Captures a sandbox as a template, and answers the template's document.
pub(crate) async fn commit(inner: &Arc<Inner>, options: CommitOptions) -> Result<TemplateDocument> {
    let CommitOptions { sandbox, template: id, capture_paths, label } = options;
    if id.as_str() == template::HOST {
        let why = format!("`{}` is the built-in template", template::HOST);
        return Err(fail(ErrorKind::InvalidInput, COMMIT, why).with_hint("choose another id"));
    }
    check_label(COMMIT, label.as_deref())?;
    let origin = format!("commit of sandbox `{sandbox}`");
    let finish = move |home: &Home, captured: Captured<'_>| {
        let boot = Boot { template: id.clone(), ..captured.boot.clone() };
        let mut document = TemplateDocument::new(id, boot, origin);
        document.label = label;
        // Nothing begins to use or to remove anything until its name stands.
        let lock = StoreLock::take(home, Hold::Alone, COMMIT)?;
        captured.staged.finish(&captured.id, Some(captured.size))?;
        document.size_bytes = size(home, &document.layers)?;
        document.publish(home, &lock)?;
        Ok(document)
    };
    capture(inner, &sandbox, capture_paths, None, COMMIT, finish).await
}

/// Refuses a word that can't be shown.
pub(crate) fn check_label(operation: &'static str, label: Option<&str>) -> Result<()> {
    match label {
        Some(label) if label.len() > MAX_LABEL => {
            let why = format!("the label has {} bytes: expected at most {MAX_LABEL}", label.len());
            Err(fail(ErrorKind::InvalidInput, operation, why))
        }
        _ => Ok(()),
    }
}

/// Bytes of these layers; `None` where one was not counted.
pub(crate) fn size(home: &Home, layers: &[crate::store::LayerId]) -> Result<Option<u64>> {
    let mut sum = Some(0_u64);
    for layer in layers {
        let bytes = LayerDocument::read(home, layer)?.and_then(|document| document.size_bytes);
        sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    Ok(sum)
}
