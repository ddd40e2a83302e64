//! What has to go inside, whatever becomes of the call that made it.

use std::time::Duration;

use tokio::runtime::Handle;

use super::EnvdClient;
use super::script::Script;
use crate::operation::Operation;

/// How long removing something may take. The reference's own.
const BOUND: Duration = Duration::from_secs(20);
/// Removes what is named, also where its folders have no rights.
const REMOVE: &str = r#"
rm -rf -- "$@" 2>/dev/null || { chmod -R u+rwx -- "$@"; rm -rf -- "$@"; } 2>/dev/null
"#;

/// Removes paths inside when it is dropped, unless told that they are gone.
///
/// Dropping does not wait: the removal is a task of its own, with a bound, which no failure of it outlives. A sandbox that can't be reached any more
/// keeps them until it ends.
pub(super) struct Cleanup {
    client: EnvdClient,
    paths: Vec<String>,
    operation: Operation,
}

impl Cleanup {
    pub(super) fn new(client: &EnvdClient, paths: Vec<String>, operation: Operation) -> Self {
        Self { client: client.clone(), paths, operation }
    }

    /// They are gone already.
    pub(super) fn done(mut self) {
        self.paths.clear();
    }

    /// Removes them now. Whether that works changes nothing about what was asked for.
    pub(super) async fn now(mut self) {
        let paths = std::mem::take(&mut self.paths);
        let _ = self.client.script(Script::new(REMOVE, paths, BOUND), self.operation).await;
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if self.paths.is_empty() {
            return;
        }
        // Outside of a runtime there is nobody to do it.
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, paths, operation) =
            (self.client.clone(), std::mem::take(&mut self.paths), self.operation);
        runtime.spawn(async move {
            let _ = client.script(Script::new(REMOVE, paths, BOUND), operation).await;
        });
    }
}
