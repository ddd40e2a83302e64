use futures::{AsyncReadExt, AsyncWriteExt};
use sandbar_core::{Command, ErrorKind, Retry, Signal, SpawnOptions};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, PATIENCE, ensure, ensure_eq, eventually, expect_error, fail, part};
use crate::harness::Feature;

group!("ports";
    dial_to_nobody_is_unavailable, dial_to_port_zero_is_invalid, dial_reaches_a_server, publish_answers_the_same_again,
    published_is_in_the_list_and_record, preview_url_of_port_zero_is_invalid, preview_url_holds_or_is_unsupported,
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

async fn published_is_in_the_list_and_record(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    let ports = part(sandbox.ports(), &*sandbox, "ports")?;
    let mapping = ports.publish(8124).await?;
    ensure!(ports.published().await?.contains(&mapping), "it is not in the list");
    ensure!(sandbox.record().await?.ports.contains(&mapping), "it is not in the record");
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
