use sandbar::{Error, SandboxProvider};

use crate::commands::each::{Deed, each};
use crate::commands::resolve::resolve;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::Printer;

const DESTROY: Deed = Deed { doing: "destroying", done: "destroyed" };

/// Destroys each; one that is absent or can't be destroyed does not keep the others.
pub(crate) async fn destroy(
    provider: &dyn SandboxProvider,
    ids: &[String],
    printer: Printer,
) -> Result<ExitStatus> {
    let act = async |text: &String| match resolve(provider, text, "destroy").await? {
        Some(id) => Ok(provider.destroy(&id).await?.then_some(id)),
        None => Ok(None),
    };
    let absent = |text: &String| {
        Error::not_found("destroy", format!("sandbox `{text}`")).with_hint("`sandbar ls` shows what exists")
    };
    each(DESTROY, ids, act, absent, printer).await
}
