use std::sync::Arc;

use sandbar_core::{Error, SandboxId};
use sandbar_wire::envd::RpcError;

use crate::fault;
use crate::operation::Operation;
use crate::transport::{Failure, Transport};

/// A client of one sandbox' agent. Cheap to clone: handles outlive the call that made them.
#[derive(Clone, Debug)]
pub struct GuestClient {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) dialect: Dialect,
}

/// Whose agent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Sandbar's, which has extensions and is on this machine.
    Own,
    /// Anybody's, somewhere.
    Envd,
}

impl GuestClient {
    /// A client over `transport`.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, dialect: Dialect::Own }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        self.transport.sandbox()
    }

    pub(crate) fn operation(&self, name: &'static str) -> Operation {
        Operation::new(name, self.transport.backend())
    }

    pub(crate) async fn lost(&self, operation: Operation, failure: Failure) -> Error {
        self.transport.lost(operation.name, failure).await
    }

    /// What came of starting something, with the way out.
    pub(crate) fn start_fault(&self, operation: Operation, error: &RpcError) -> Error {
        fault::start(self.id(), operation, error, || self.transport.process_limit_hint())
    }

    /// The sandbox may be there and may run; nobody could tell.
    pub(crate) fn unknown(&self, operation: Operation, why: impl std::fmt::Display) -> Error {
        let id = self.id();
        operation
            .fail(
                sandbar_core::ErrorKind::Unavailable,
                format!("the state of sandbox `{id}` is unknown: {why}"),
            )
            .with_resource(format!("sandbox `{id}`"))
            .with_retry(sandbar_core::Retry::OutcomeUnknown)
    }
}
