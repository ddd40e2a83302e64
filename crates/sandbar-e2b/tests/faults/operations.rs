//! What a backend does by the control plane, but for what the reference backend lacks: policies of egress, templates and volumes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use jiff::Timestamp;
use sandbar::{
    CreateOptions, Deadline, DeadlineMode, Error, ErrorKind, GetOptions, Labels, ProviderExt, Query, Result,
    Sandbox, SandboxExt, SandboxId, SandboxProvider, SandboxRecord, State,
};
use sandbar_e2b::E2bProvider;
use sandbar_http::testing::FaultProxy;
use std::sync::Arc;

use crate::bed::Bed;

pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Whether it makes a thing that must not be left unsaid.
    pub(crate) makes_anew: bool,
    /// Whether its sandbox sleeps before.
    on_sleeping: bool,
    run: for<'a> fn(&'a Case<'_>) -> BoxFuture<'a, Result<()>>,
    /// Whether what a success promises is so.
    holds: fn(Option<&SandboxRecord>) -> bool,
}

fn wrong(what: &str) -> Error {
    // No judge takes this for an error of the backend.
    Error::new(ErrorKind::NotFound, "test", format!("a wrong answer: {what}"))
}

fn runs(record: Option<&SandboxRecord>) -> bool {
    record.is_some_and(|record| record.state == State::Running)
}

/// As long as only `set_deadline` gives.
const LONG: Duration = Duration::from_secs(5 * 3600);

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "create",
        makes_anew: true,
        on_sleeping: false,
        run: |case| {
            async move {
                let made = case.provider.create(case.labelled("made")).await?;
                case.has_made(made.id());
                Ok(())
            }
            .boxed()
        },
        holds: runs,
    },
    Operation {
        name: "get",
        makes_anew: false,
        on_sleeping: false,
        run: |case| {
            async move {
                let found = case.provider.get_opts(&case.id, GetOptions::default()).await?;
                found.map(drop).ok_or_else(|| wrong("absent"))
            }
            .boxed()
        },
        holds: runs,
    },
    Operation {
        name: "describe",
        makes_anew: false,
        on_sleeping: true,
        run: |case| {
            async move {
                let found = case.provider.describe(&case.id).await?.ok_or_else(|| wrong("absent"))?;
                if found.id == case.id && found.state == State::Sleeping {
                    Ok(())
                } else {
                    Err(wrong("another"))
                }
            }
            .boxed()
        },
        holds: |record| record.is_some_and(|record| record.state == State::Sleeping),
    },
    Operation {
        name: "record",
        makes_anew: false,
        on_sleeping: false,
        run: |case| {
            async move {
                let record = case.sandbox.record().await?;
                if record.id == case.id && record.state == State::Running {
                    Ok(())
                } else {
                    Err(wrong("another"))
                }
            }
            .boxed()
        },
        holds: runs,
    },
    Operation {
        name: "list",
        makes_anew: false,
        on_sleeping: false,
        run: |case| {
            async move {
                let query = Query::new().with_labels(case.labels("base"));
                let rows: Vec<_> = case.provider.list(query).await?.try_collect().await?;
                match &rows[..] {
                    [row] if row.id == case.id => Ok(()),
                    _ => Err(wrong("a listing that is short or long")),
                }
            }
            .boxed()
        },
        holds: runs,
    },
    Operation {
        name: "destroy",
        makes_anew: false,
        on_sleeping: false,
        run: |case| {
            async move {
                if case.provider.destroy(&case.id).await? { Ok(()) } else { Err(wrong("absent already")) }
            }
            .boxed()
        },
        holds: |record| record.is_none(),
    },
    Operation {
        name: "set_deadline",
        makes_anew: false,
        on_sleeping: false,
        run: |case| {
            async move { case.sandbox.set_deadline(Deadline::In(LONG), DeadlineMode::Set).await.map(drop) }
                .boxed()
        },
        holds: |record| {
            let end = record.and_then(|record| record.deadline);
            end.is_some_and(|end| end.duration_since(Timestamp::now()).as_secs() > 4 * 3600)
        },
    },
    Operation {
        name: "hibernate",
        makes_anew: false,
        on_sleeping: false,
        run: |case| async move { case.sandbox.require_pausing()?.hibernate().await.map(drop) }.boxed(),
        holds: |record| record.is_some_and(|record| record.state == State::Sleeping),
    },
    Operation {
        name: "wake",
        makes_anew: false,
        on_sleeping: true,
        run: |case| async move { case.sandbox.wake().await }.boxed(),
        holds: runs,
    },
];

/// One operation, with a sandbox and a proxy of its own.
pub(crate) struct Case<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) operation: &'static Operation,
    pub(crate) proxy: FaultProxy,
    provider: E2bProvider,
    sandbox: Arc<dyn Sandbox>,
    id: SandboxId,
    mark: String,
    made: std::sync::Mutex<Option<SandboxId>>,
}

impl<'a> Case<'a> {
    pub(crate) async fn new(bed: &'a Bed, operation: &'static Operation) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("case-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let labels = Labels::new().with("case", format!("{mark}-base")).expect("a label");
        let made = bed.direct().create(CreateOptions::new().with_labels(labels)).await.expect("a sandbox");
        if operation.on_sleeping {
            made.require_pausing().expect("it can sleep").hibernate().await.expect("it sleeps");
        }
        let id = made.id().clone();
        let proxy = FaultProxy::start(bed.address).await;
        let provider = bed.provider(&proxy.url());
        let sandbox = provider.get(&id).await.expect("a look").expect("it is there");
        Self { bed, operation, proxy, provider, sandbox, id, mark, made: std::sync::Mutex::default() }
    }

    pub(crate) async fn run(&self) -> Result<()> {
        (self.operation.run)(self).await
    }

    /// Whether what was promised is so, as it looks behind the server.
    pub(crate) async fn has_happened(&self) -> Result<(), String> {
        let made = self.made.lock().expect("nobody panicked").clone();
        let id = made.as_ref().unwrap_or(&self.id);
        if self.operation.makes_anew {
            let all = self.made_anew().await;
            if all != [id.clone()] {
                return Err(format!("{id} was answered, and there are {all:?}"));
            }
        }
        let record = self.bed.behind.describe(id).await.expect("a look");
        if (self.operation.holds)(record.as_ref()) { Ok(()) } else { Err(format!("{record:?}")) }
    }

    /// What the operation made, as it looks behind the server.
    pub(crate) async fn made_anew(&self) -> Vec<SandboxId> {
        let all = self.bed.behind.list_all(Query::new()).await.expect("a listing");
        let mark = format!("{}-made", self.mark);
        all.into_iter()
            .filter(|record| record.labels.iter().any(|(_, value)| value.contains(mark.as_str())))
            .map(|record| record.id)
            .collect()
    }

    fn labels(&self, of: &str) -> Labels {
        Labels::new().with("case", format!("{}-{of}", self.mark)).expect("a label")
    }

    fn labelled(&self, of: &str) -> CreateOptions {
        CreateOptions::new().with_labels(self.labels(of))
    }

    fn has_made(&self, id: &SandboxId) {
        *self.made.lock().expect("nobody panicked") = Some(id.clone());
    }
}
