use std::net::{Ipv4Addr, TcpListener, TcpStream};

use futures::{AsyncReadExt, AsyncWriteExt};
use sandbar_core::{Command, ErrorKind, PortMapping, PortPublication, Ports, Retry, Signal, SpawnOptions};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{
    Checked, PATIENCE, ensure, ensure_eq, eventually, expect_error, fail, part, skip_unsupported,
};
use crate::harness::Feature;

group!("ports";
    dial_to_nobody_is_unavailable, dial_to_port_zero_is_invalid, dial_reaches_a_server, publish_answers_the_same_again,
    published_is_in_the_list_and_record, publish_at_a_chosen_port_gives_that_port,
    publish_at_a_taken_port_changes_nothing, publish_elsewhere_is_already_exists, publish_at_port_zero_is_invalid,
    unpublished_is_gone_and_free, unpublish_of_nothing_is_false, preview_url_of_port_zero_is_invalid, preview_url_holds_or_is_unsupported,
    publish_of_port_zero_is_invalid, publish_in_a_gone_sandbox_is_not_found,
);

async fn dial_to_nobody_is_unavailable(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let error = expect_error(ports.dial(9).await, &[ErrorKind::Unavailable], "a dial to nobody")?;
    ensure_eq!(error.retry(), Retry::Safe, "whether to try again");
    Ok(())
}

async fn dial_to_port_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    expect_error(ports.dial(0).await, &[ErrorKind::InvalidInput], "a dial to port 0").map(drop)
}

/// Answers one line in capitals to each connection.
const SERVER: &str = "
import socket
s = socket.create_server(('127.0.0.1', 18080))
while True:
    c, _ = s.accept()
    c.sendall(c.recv(100).upper())
    c.close()
";

async fn dial_reaches_a_server(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    bed.need(Feature::Python)?;
    let processes = part(sandbox.processes(), &*sandbox, "processes")?;
    let server = processes.spawn(&Command::new("python3").args(["-c", SERVER]), SpawnOptions::new()).await?;
    eventually("the server", || async {
        match ports.dial(18080).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
    .await?;
    let mut stream = ports.dial(18080).await?;
    let talk = async {
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = match tokio::time::timeout(PATIENCE, talk).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return fail(format!("the connection broke: {error}")),
        Err(_) => return fail("the server did not answer"),
    };
    server.control.signal(Signal::KILL).await?;
    ensure_eq!(answer, b"HELLO", "the answer");
    Ok(())
}

async fn publish_answers_the_same_again(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let first = ports.publish(8123).await?;
    ensure_eq!(first.guest, 8123, "the guest's port");
    ensure!(first.port != 0 && !first.host.is_empty(), "the mapping leads nowhere: {first:?}");
    ensure_eq!(ports.publish(8123).await?, first, "the second mapping");
    Ok(())
}

async fn publish_of_port_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    expect_error(ports.publish(0).await, &[ErrorKind::InvalidInput], "port 0").map(drop)
}

async fn publish_in_a_gone_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.ports(), &*shared, "ports")?;
    let sandbox = bed.fresh().await?;
    sandbox.destroy().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    expect_error(ports.publish(8125).await, &[ErrorKind::NotFound], "a port of a gone sandbox")?;
    expect_error(ports.dial(8125).await, &[ErrorKind::NotFound], "a dial into a gone sandbox").map(drop)
}

async fn published_is_in_the_list_and_record(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let mapping = ports.publish(8124).await?;
    ensure!(ports.published().await?.contains(&mapping), "it is not in the list");
    ensure!(sandbox.record().await?.ports.contains(&mapping), "it is not in the record");
    Ok(())
}

/// A port of this machine that is free; who else might take it before it is used has thousands to choose from.
pub(super) fn free_port() -> Checked<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    match listener {
        Ok(address) => Ok(address.port()),
        Err(error) => crate::check::skip(format!("this machine gives no port: {error}")),
    }
}

/// Publishes at a chosen port of this machine, or skips where the backend can't choose.
async fn chosen(ports: &dyn Ports, guest: u16) -> Checked<PortMapping> {
    let port = free_port()?;
    let wanted = PortPublication::new(guest).with_address(Ipv4Addr::LOCALHOST.into()).with_port(port);
    let mapping = skip_unsupported(ports.publish_at(wanted).await)?;
    let expected = PortMapping { guest, host: Ipv4Addr::LOCALHOST.to_string(), port };
    ensure_eq!(mapping, expected, "the mapping at a chosen place");
    Ok(mapping)
}

async fn publish_at_a_chosen_port_gives_that_port(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let mapping = chosen(ports, 8125).await?;
    ensure_eq!(ports.publish(8125).await?, mapping, "what fits already");
    let again = PortPublication::new(8125).with_port(mapping.port);
    ensure_eq!(ports.publish_at(again).await?, mapping, "the same place again");
    ensure!(sandbox.record().await?.ports.contains(&mapping), "it is not in the record");
    Ok(())
}

async fn publish_at_a_taken_port_changes_nothing(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let taken = chosen(ports, 8125).await?;
    let wanted = PortPublication::new(8126).with_address(Ipv4Addr::LOCALHOST.into()).with_port(taken.port);
    let error = expect_error(ports.publish_at(wanted).await, &[ErrorKind::AlreadyExists], "a taken place")?;
    let named = error.resource().is_some_and(|resource| resource.contains(&taken.port.to_string()));
    ensure!(named, "the resource is not the address: {error:?}");
    ensure_eq!(ports.published().await?, vec![taken], "what is published");
    Ok(())
}

async fn publish_elsewhere_is_already_exists(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let first = chosen(ports, 8125).await?;
    let elsewhere = PortPublication::new(8125).with_port(free_port()?);
    let kinds = [ErrorKind::AlreadyExists];
    expect_error(ports.publish_at(elsewhere).await, &kinds, "a port that is published elsewhere")?;
    ensure_eq!(ports.published().await?, vec![first], "what is published");
    Ok(())
}

async fn publish_at_port_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let kinds = [ErrorKind::InvalidInput];
    expect_error(ports.publish(0).await, &kinds, "publishing port 0")?;
    let host = PortPublication::new(8127).with_port(0);
    expect_error(ports.publish_at(host).await, &kinds, "port 0 of the host").map(drop)
}

async fn unpublished_is_gone_and_free(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let mapping = ports.publish(8128).await?;
    ensure!(ports.unpublish(8128).await?, "it was not published");
    ensure!(ports.published().await?.is_empty(), "it is still in the list");
    ensure!(sandbox.record().await?.ports.is_empty(), "it is still in the record");
    eventually("the end of its address", || async {
        Ok(TcpStream::connect((mapping.host.as_str(), mapping.port)).is_err())
    })
    .await?;
    let again = PortPublication::new(8129).with_port(mapping.port);
    let other = skip_unsupported(ports.publish_at(again).await)?;
    ensure_eq!(other.port, mapping.port, "the place, for another port");
    Ok(())
}

async fn unpublish_of_nothing_is_false(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    ensure!(!ports.unpublish(8130).await?, "a port that was never published was");
    ports.publish(8130).await?;
    ensure!(ports.unpublish(8130).await?, "a published port was not");
    ensure!(!ports.unpublish(8130).await?, "a port that was taken back was still published");
    Ok(())
}

async fn preview_url_of_port_zero_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let kinds = [ErrorKind::InvalidInput, ErrorKind::Unsupported];
    expect_error(sandbox.preview_url(0).await, &kinds, "the preview of port 0").map(drop)
}

async fn preview_url_holds_or_is_unsupported(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    match sandbox.preview_url(5173).await {
        Ok(url) => ensure!(url.contains("://"), "`{url}` is no address"),
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Unsupported, "kind of the refusal"),
    }
    Ok(())
}
