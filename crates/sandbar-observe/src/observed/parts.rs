use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use sandbar_core::{
    Archive, ByteStream, DeadlineAction, DecisionOptions, Decisions, Destination, EgressCounters,
    EgressPolicy, Explanation, Follow, ForkOptions, ForkOutcome, Forking, Guest, GuestPath, GuestStream,
    HibernationOutcome, ImportReport, LimitDemand, LogEvent, LogOptions, MainLogs, MainProcess, MainStatus,
    Network, Pausing, PortMapping, PortPublication, Ports, Protocol, ResourceControl, Resources, Result,
    Sandbox, SandboxExt, WatchEvents, WatchOptions, Watching,
};
use serde_json::json;

use super::files::{at, told};
use super::sandbox::port_detail;
use super::{ObservedSandbox, Target};
use crate::event::details;

#[async_trait]
impl Watching for ObservedSandbox {
    async fn watch(&self, path: &GuestPath, options: WatchOptions) -> Result<WatchEvents> {
        let work = async { self.inner.require_watching()?.watch(path, options).await };
        self.tell("watch", |detail| at(path, detail), work).await
    }
}

#[async_trait]
impl Ports for ObservedSandbox {
    async fn dial(&self, port: u16) -> Result<GuestStream> {
        let work = async { self.inner.require_ports()?.dial(port).await };
        self.tell("dial", |detail| port_detail(port, detail), work).await
    }

    async fn publish(&self, port: u16) -> Result<PortMapping> {
        self.publish_at(PortPublication::new(port)).await
    }

    async fn publish_at(&self, port: PortPublication) -> Result<PortMapping> {
        let PortPublication { guest, address, port: host_port } = port;
        let mut operation = self
            .begin("publish", |detail| {
                port_detail(guest, detail);
                detail.insert("wanted_host".into(), address.map(|address| address.to_string()).into());
                detail.insert("wanted_port".into(), host_port.into());
            })
            .await?;
        let work = async { self.inner.require_ports()?.publish_at(port).await };
        let published = operation.cause(work).await;
        if let Ok(mapping) = &published {
            operation.detail("host", details::word(&mapping.host));
            operation.detail("host_port", mapping.port);
        }
        operation.end(published).await
    }

    async fn unpublish(&self, port: u16) -> Result<bool> {
        let mut operation = self.begin("unpublish", |detail| port_detail(port, detail)).await?;
        let work = async { self.inner.require_ports()?.unpublish(port).await };
        let unpublished = operation.cause(work).await;
        if let Ok(existed) = unpublished {
            operation.detail("existed", existed);
        }
        operation.end(unpublished).await
    }

    async fn published(&self) -> Result<Vec<PortMapping>> {
        self.inner.require_ports()?.published().await
    }
}

#[async_trait]
impl Pausing for ObservedSandbox {
    async fn hibernate(&self) -> Result<HibernationOutcome> {
        let mut operation = self.begin("hibernate", |_| {}).await?;
        let work = async { self.inner.require_pausing()?.hibernate().await };
        let outcome = operation.cause(work).await;
        if let Ok(outcome) = &outcome {
            operation.detail("processes_preserved", outcome.processes_preserved);
        }
        operation.end(outcome).await
    }

    async fn resume(&self) -> Result<HibernationOutcome> {
        let mut operation = self.begin("resume", |_| {}).await?;
        let work = async { self.inner.require_pausing()?.resume().await };
        let outcome = operation.cause(work).await;
        if let Ok(outcome) = &outcome {
            operation.detail("processes_preserved", outcome.processes_preserved);
        }
        operation.end(outcome).await
    }

    async fn set_deadline_action(&self, action: DeadlineAction) -> Result<()> {
        let work = async { self.inner.require_pausing()?.set_deadline_action(action).await };
        self.tell("set_deadline_action", |detail| drop(detail.insert("action".into(), json!(action))), work)
            .await
    }
}

#[async_trait]
impl Forking for ObservedSandbox {
    async fn fork(&self, options: ForkOptions) -> Result<(Arc<dyn Sandbox>, ForkOutcome)> {
        let mut operation = self
            .begin("fork", |detail| {
                if let Some(name) = &options.name {
                    detail.insert("name".into(), details::word(name.as_str()));
                }
                detail.insert("egress".into(), json!(options.egress));
            })
            .await?;
        let work = async { self.inner.require_forking()?.fork(options).await };
        let forked = operation.cause(work).await;
        if let Ok((copy, outcome)) = &forked {
            operation.detail("copy", copy.id().as_str());
            operation.detail("processes_preserved", outcome.processes_preserved);
        }
        let (copy, outcome) = operation.end(forked).await?;
        let target = Target { sandbox: Some(copy.id().clone()), project: self.target.project.clone() };
        let copy = Self::new(copy, Arc::clone(&self.observation), self.backend, target);
        Ok((Arc::new(copy), outcome))
    }
}

#[async_trait]
impl Archive for ObservedSandbox {
    async fn export(&self, path: &GuestPath) -> Result<ByteStream> {
        let operation = self.begin("export", |detail| at(path, detail)).await?;
        let work = async { self.inner.require_archive()?.export(path).await };
        match operation.cause(work).await {
            Ok(body) => Ok(told(body, operation, Bytes::len)),
            Err(error) => operation.end(Err(error)).await,
        }
    }

    async fn import(&self, path: &GuestPath, tar: ByteStream) -> Result<ImportReport> {
        let mut operation = self.begin("import", |detail| at(path, detail)).await?;
        let work = async { self.inner.require_archive()?.import(path, tar).await };
        let imported = operation.cause(work).await;
        if let Ok(report) = &imported {
            operation.detail("entries", report.entries);
            operation.detail("bytes", report.bytes);
        }
        operation.end(imported).await
    }
}

#[async_trait]
impl ResourceControl for ObservedSandbox {
    async fn set_resources(&self, resources: Resources, demand: LimitDemand) -> Result<()> {
        let Resources { memory_bytes, cpu_millis, pids, disk_bytes } = resources;
        let work = async { self.inner.require_resources()?.set_resources(resources, demand).await };
        self.tell(
            "set_resources",
            |detail| {
                let asked = [
                    ("memory", memory_bytes),
                    ("cpu", cpu_millis.map(u64::from)),
                    ("pids", pids.map(u64::from)),
                    ("disk", disk_bytes),
                ];
                for (name, value) in asked {
                    if let Some(value) = value {
                        detail.insert(name.into(), value.into());
                    }
                }
            },
            work,
        )
        .await
    }
}

#[async_trait]
impl MainProcess for ObservedSandbox {
    async fn status(&self) -> Result<Option<MainStatus>> {
        // What the record has, too.
        self.inner.require_main_command()?.status().await
    }

    async fn logs(&self, options: LogOptions) -> Result<MainLogs> {
        let LogOptions { follow, tail, since } = options;
        let operation = self
            .begin("logs", |detail| {
                detail.insert("follow".into(), (follow == Follow::Yes).into());
                if let Some(tail) = tail {
                    detail.insert("tail".into(), tail.into());
                }
                if let Some(since) = since {
                    detail.insert("since".into(), json!(since));
                }
            })
            .await?;
        let work = async { self.inner.require_main_command()?.logs(options).await };
        match operation.cause(work).await {
            Ok(logs) => Ok(told(logs, operation, said)),
            Err(error) => operation.end(Err(error)).await,
        }
    }
}

/// Bytes that are shown; of what is lost nothing is.
fn said(event: &LogEvent) -> usize {
    match event {
        LogEvent::Output(chunk) => chunk.bytes.len(),
        // A loss, or something of a later version that is no output.
        _ => 0,
    }
}

#[async_trait]
impl Network for ObservedSandbox {
    async fn policy(&self) -> Result<EgressPolicy> {
        self.inner.require_network()?.policy().await
    }

    async fn set_policy(&self, policy: EgressPolicy) -> Result<()> {
        let told = json!(policy);
        let work = async { self.inner.require_network()?.set_policy(policy).await };
        self.tell("set_policy", |detail| drop(detail.insert("egress".into(), told)), work).await
    }

    async fn counters(&self) -> Result<EgressCounters> {
        self.inner.require_network()?.counters().await
    }

    async fn decisions(&self, options: DecisionOptions) -> Result<Decisions> {
        self.inner.require_network()?.decisions(options).await
    }

    async fn explain(&self, destination: Destination, port: u16, protocol: Protocol) -> Result<Explanation> {
        self.inner.require_network()?.explain(destination, port, protocol).await
    }
}

#[async_trait]
impl Guest for ObservedSandbox {
    fn protocol(&self) -> &str {
        self.inner.guest().map_or("", |guest| guest.protocol())
    }

    /// What passes through the tunnel is the guest protocol's, and is not told one by one.
    async fn connect(&self) -> Result<GuestStream> {
        let work = async { self.inner.require_guest()?.connect().await };
        self.tell("connect_guest", |_| {}, work).await
    }
}
