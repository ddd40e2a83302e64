use std::future::Future;

use super::TraceContext;

tokio::task_local! {
    static CURRENT: TraceContext;
}

impl TraceContext {
    /// Does `work` in this context: what it does to sandboxes through an [`Observed`](crate::Observed) provider belongs to this trace. It holds
    /// for the task, not for tasks that the work starts.
    pub async fn scope<T>(self, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self, work).await
    }

    /// The context of the present task, if it has one.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }
}
