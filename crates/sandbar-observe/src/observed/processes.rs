use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::Stream;
use sandbar_core::{
    Command, Process, ProcessControl, ProcessEvent, ProcessEvents, ProcessId, ProcessInfo, Processes,
    PtySize, Result, SandboxExt, Signal, SignalReach, SpawnOptions,
};

use super::commands::started;
use super::observation::pass_on;
use super::{Observation, ObservedSandbox, Operation, Target};
use crate::event::details;

#[async_trait]
impl Processes for ObservedSandbox {
    async fn spawn(&self, command: &Command, mut options: SpawnOptions) -> Result<Process> {
        let mut operation = self
            .begin("spawn", |detail| {
                self.observation.command(command, detail);
                started(options.cwd.as_ref(), options.user.as_ref(), &options.env, detail);
                if let Some(tag) = &options.tag {
                    detail.insert("tag".into(), details::word(tag));
                }
                detail.insert("terminal".into(), options.pty.is_some().into());
            })
            .await?;
        pass_on(operation.span(), &mut options.env);
        let work = async { self.inner.require_processes()?.spawn(command, options).await };
        match operation.cause(work).await {
            Ok(process) => {
                operation.detail("pid", process.pid);
                Ok(self.told(process, operation))
            }
            Err(error) => operation.end(Err(error)).await,
        }
    }

    async fn list(&self) -> Result<Vec<ProcessInfo>> {
        let work = async { self.inner.require_processes()?.list().await };
        self.tell("list_processes", |_| {}, work).await
    }

    async fn list_all(&self) -> Result<Vec<ProcessInfo>> {
        let work = async { self.inner.require_processes()?.list_all().await };
        self.tell("list_processes", |detail| drop(detail.insert("all".into(), true.into())), work).await
    }

    async fn attach(&self, pid: ProcessId) -> Result<Process> {
        let operation = self.begin("attach", |detail| drop(detail.insert("pid".into(), pid.into()))).await?;
        let work = async { self.inner.require_processes()?.attach(pid).await };
        match operation.cause(work).await {
            Ok(process) => Ok(self.told(process, operation)),
            Err(error) => operation.end(Err(error)).await,
        }
    }

    async fn signal(&self, pid: ProcessId, signal: Signal) -> Result<bool> {
        let work = async { self.inner.require_processes()?.signal(pid, signal).await };
        let sent = Sent { pid, signal, reach: None };
        tell_signal(&self.observation, self.backend, &self.target, sent, work).await
    }

    async fn signal_any(&self, pid: ProcessId, signal: Signal, reach: SignalReach) -> Result<bool> {
        let work = async { self.inner.require_processes()?.signal_any(pid, signal, reach).await };
        let sent = Sent { pid, signal, reach: Some(reach) };
        tell_signal(&self.observation, self.backend, &self.target, sent, work).await
    }
}

impl ObservedSandbox {
    /// A process whose end is told, to whoever reads its events to it.
    fn told(&self, process: Process, operation: Operation) -> Process {
        let Process { pid, events, control } = process;
        let control = Control {
            inner: control,
            observation: Arc::clone(&self.observation),
            backend: self.backend,
            target: self.target.clone(),
            pid,
        };
        let events = Told { events, operation: Some(operation) };
        Process { pid, events: events.boxed(), control: Arc::new(control) }
    }
}

/// A signal, and to whom.
struct Sent {
    pid: ProcessId,
    signal: Signal,
    /// Who else gets it, where it is one for any process.
    reach: Option<SignalReach>,
}

async fn tell_signal(
    observation: &Arc<Observation>,
    backend: &'static str,
    target: &Target,
    sent: Sent,
    work: impl Future<Output = Result<bool>>,
) -> Result<bool> {
    let mut operation = Operation::begin(observation, backend, "signal", target, |detail| {
        detail.insert("pid".into(), sent.pid.into());
        detail.insert("signal".into(), sent.signal.0.into());
        if let Some(reach) = sent.reach {
            let reach = match reach {
                SignalReach::Tree => "tree",
                SignalReach::Process => "process",
            };
            detail.insert("reach".into(), reach.into());
        }
    })
    .await?;
    let sent = operation.cause(work).await;
    if let Ok(existed) = sent {
        operation.detail("existed", existed);
    }
    operation.end(sent).await
}

struct Told {
    events: ProcessEvents,
    operation: Option<Operation>,
}

impl Stream for Told {
    type Item = Result<ProcessEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(self.events.poll_next_unpin(cx));
        match &next {
            Some(Ok(ProcessEvent::Exit(exit))) => {
                if let Some(mut operation) = self.operation.take() {
                    operation.details(|detail| details::exit(exit.status, exit.cause, detail));
                    operation.end_at_once(&Ok(()));
                }
            }
            Some(Err(_)) => {
                if let (Some(operation), Some(failed)) = (self.operation.take(), &next) {
                    operation.end_at_once(failed);
                }
            }
            // Events that stop without an end: dropping the operation says that it is unknown.
            None => drop(self.operation.take()),
            Some(Ok(_)) => {}
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.events.size_hint()
    }
}

/// Control over a process; signals are told, what is written to it is not.
struct Control {
    inner: Arc<dyn ProcessControl>,
    observation: Arc<Observation>,
    backend: &'static str,
    target: Target,
    pid: ProcessId,
}

#[async_trait]
impl ProcessControl for Control {
    async fn write(&self, bytes: Bytes) -> Result<()> {
        self.inner.write(bytes).await
    }

    async fn close_stdin(&self) -> Result<()> {
        self.inner.close_stdin().await
    }

    async fn resize(&self, size: PtySize) -> Result<()> {
        self.inner.resize(size).await
    }

    async fn signal(&self, signal: Signal) -> Result<bool> {
        let work = self.inner.signal(signal);
        let sent = Sent { pid: self.pid, signal, reach: None };
        tell_signal(&self.observation, self.backend, &self.target, sent, work).await
    }
}
