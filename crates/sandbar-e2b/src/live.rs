use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use sandbar_core::{Result, Sandbox};
use sandbar_wire::e2b::{ListedSandbox, Metadata, SandboxState};

use crate::E2bProvider;
use crate::create::id_of;
use crate::marks::Marks;

/// Most connects in flight, as the reference has it.
const CONNECTS: usize = 16;

const OPERATION: &str = "list";

impl E2bProvider {
    /// Connected handles on all sandboxes that run, in the order of E2B's listing. Those that sleep are left asleep, those that vanish meanwhile left
    /// out; the first failure is the answer, and no more is connected.
    ///
    /// Connecting lets each live for its own time from now on at least. Who only wants to know what there is calls
    /// [`SandboxProvider::list`](sandbar_core::SandboxProvider::list), which touches nothing.
    pub async fn live_sandboxes(&self) -> Result<Vec<Arc<dyn Sandbox>>> {
        let rows = self.api.list(OPERATION, &Metadata::new(), &[SandboxState::Running]);
        let rows: Vec<ListedSandbox> = rows.try_collect().await?;
        let running = rows.into_iter().filter(|row| row.state == SandboxState::Running).enumerate();
        let connects = stream::iter(running).map(|(place, row)| async move {
            let sandbox = self.handle(id_of(&row.sandbox_id)?);
            let marks = row.metadata.as_ref().map(Marks::of).unwrap_or_default();
            let timeout = marks.lifetime.unwrap_or_else(|| self.config().lifetime());
            let answer = self.api.connect(OPERATION, sandbox.access.id(), timeout).await?;
            Ok(answer.map(|answer| {
                sandbox.access.made(&answer);
                (place, sandbox.shared())
            }))
        });
        let connected = connects.buffer_unordered(CONNECTS).try_filter_map(|one| async move { Ok(one) });
        let mut connected: Vec<(usize, Arc<dyn Sandbox>)> = connected.try_collect().await?;
        connected.sort_by_key(|(place, _)| *place);
        Ok(connected.into_iter().map(|(_, sandbox)| sandbox).collect())
    }
}
