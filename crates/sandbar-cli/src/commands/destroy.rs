use sandbar::{Error, SandboxProvider};
use serde_json::json;

use crate::commands::resolve::resolve;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json};

/// Destroys each; one that is absent or can't be destroyed does not keep the others.
pub(crate) async fn destroy(
    provider: &dyn SandboxProvider,
    ids: &[String],
    printer: Printer,
) -> Result<ExitStatus> {
    let (mut destroyed, mut absent, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for text in ids {
        let done = async {
            match resolve(provider, text, "destroy").await? {
                Some(id) => Ok(provider.destroy(&id).await?.then_some(id)),
                None => Ok::<_, Error>(None),
            }
        };
        match printer.progress(&format!("destroying {text}"), done).await {
            Ok(Some(id)) => {
                printer.detail(|| format!("destroyed {id}"));
                destroyed.push(id);
            }
            Ok(None) => {
                let error = Error::not_found("destroy", format!("sandbox `{text}`"));
                printer.error(&error.with_hint("`sandbar ls` shows what exists"));
                absent.push(text);
            }
            Err(error) => {
                printer.error(&error);
                failed.push(text);
            }
        }
    }
    if printer.json() {
        print_json(&json!({"version": 1, "destroyed": destroyed, "absent": absent, "failed": failed}))?;
    }
    Ok(match (failed.as_slice(), absent.as_slice()) {
        ([_, ..], _) => ExitStatus::Failed,
        ([], [_, ..]) => ExitStatus::Absent,
        ([], []) => ExitStatus::Done,
    })
}
