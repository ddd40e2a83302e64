use std::net::{IpAddr, SocketAddr};

use sandbar::{Error, PortMapping, PortPublication, Sandbox, SandboxExt, SandboxId, SandboxProvider};
use serde_json::{Value, json};

use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, columns, escape, print_bytes, print_json, print_line};
use crate::settings::PortSettings;

/// Version of the JSON form.
const FORM: u32 = 1;

pub(crate) async fn port(
    provider: &dyn SandboxProvider,
    settings: PortSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    match settings {
        PortSettings::List { id } => list(provider, &id, printer).await,
        PortSettings::Publish { id, port } => publish(provider, &id, port, printer).await,
        PortSettings::Remove { id, port } => remove(provider, &id, port, printer).await,
    }
}

async fn list(provider: &dyn SandboxProvider, id: &str, printer: Printer) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "list ports").await.map_err(absent)?;
    let published = sandbox.require_ports()?.published();
    let published = printer.progress("looking for its ports", published).await?;
    if printer.json() {
        print_json(&form(sandbox.id(), &published))?;
    } else {
        let rows: Vec<_> =
            published.iter().map(|mapping| [mapping.guest.to_string(), address(mapping)]).collect();
        print_bytes(columns(["PORT", "ADDRESS"], &rows).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

async fn publish(
    provider: &dyn SandboxProvider,
    id: &str,
    port: PortPublication,
    printer: Printer,
) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "publish").await.map_err(absent)?;
    let mapping = sandbox.require_ports()?.publish_at(port);
    let mapping = printer.progress("publishing", mapping).await.map_err(not_to_be_had)?;
    warn_if_open(&mapping, printer);
    if printer.json() {
        print_json(&form(sandbox.id(), std::slice::from_ref(&mapping)))?;
    } else {
        print_line(&escape(&address(&mapping)))?;
    }
    Ok(ExitStatus::Done)
}

async fn remove(provider: &dyn SandboxProvider, id: &str, port: u16, printer: Printer) -> Result<ExitStatus> {
    let sandbox = require(provider, id, "unpublish").await.map_err(absent)?;
    let ports = sandbox.require_ports()?;
    if !printer.progress("taking it back", ports.unpublish(port)).await? {
        let error = Error::not_found("unpublish", format!("published port {port}"))
            .with_hint(format!("`sandbar port {}` shows what is published", sandbox.id()));
        return Err(Failure::new(ExitStatus::Absent, error));
    }
    if printer.json() {
        print_json(&form(sandbox.id(), &ports.published().await?))?;
    }
    Ok(ExitStatus::Done)
}

/// A place that was typed and can't be had is usage.
pub(super) fn not_to_be_had(error: Error) -> Failure {
    if error.resource().is_some_and(|resource| resource.starts_with("address ")) {
        Failure::usage(error)
    } else {
        error.into()
    }
}

/// Says where the ports of a new sandbox are.
pub(super) async fn tell_ports(sandbox: &dyn Sandbox, printer: Printer) {
    let Some(ports) = sandbox.ports() else { return };
    match ports.published().await {
        Ok(published) => {
            for mapping in &published {
                printer.note(&format!("port {} is at {}", mapping.guest, address(mapping)));
                warn_if_open(mapping, printer);
            }
        }
        // It is there, and `port` and `describe` tell.
        Err(error) => printer.warn(&format!("where its ports are is not known: {error}")),
    }
}

/// Says so where others than this machine can reach a port.
fn warn_if_open(mapping: &PortMapping, printer: Printer) {
    if is_open(mapping) {
        printer.warn(&format!(
            "port {} is open to everybody who can reach this machine at {}, not only to this machine",
            mapping.guest,
            address(mapping)
        ));
    }
}

/// Whether others than this machine can reach it. What is no address of this machine's may be anything.
fn is_open(mapping: &PortMapping) -> bool {
    mapping.host.parse::<IpAddr>().map_or(true, |ip| !ip.is_loopback())
}

fn address(mapping: &PortMapping) -> String {
    match mapping.host.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, mapping.port).to_string(),
        Err(_) => format!("{}:{}", mapping.host, mapping.port),
    }
}

fn form(id: &SandboxId, published: &[PortMapping]) -> Value {
    let ports: Vec<_> = published
        .iter()
        .map(|mapping| {
            let PortMapping { guest, host, port } = mapping;
            json!({"guest": guest, "host": host, "port": port, "open": is_open(mapping)})
        })
        .collect();
    json!({"version": FORM, "id": id, "ports": ports})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_closed() {
        let at = |host: &str| PortMapping { guest: 80, host: host.into(), port: 8080 };
        for host in ["127.0.0.1", "127.1.2.3", "::1"] {
            assert!(!is_open(&at(host)), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.0.2.1", "example.com"] {
            assert!(is_open(&at(host)), "{host}");
        }
        assert_eq!(address(&at("::1")), "[::1]:8080");
    }
}
