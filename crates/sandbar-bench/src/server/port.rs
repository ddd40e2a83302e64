use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command as HostCommand, Stdio};
use std::time::{Duration, Instant};

use sandbar::{Command, SandboxExt as _, SpawnOptions};

use super::client::Client;
use super::file::note;
use super::plain;
use super::served::{Guest, Served};
use crate::bed::Bed;
use crate::row::{Bar, Peer, Row};
use crate::sample::Samples;

const ROUNDS: usize = 500;
const WARM_UP: usize = 20;
const DOWNLOADS: usize = 10;
/// Bytes of a download.
const BYTES: u64 = 512 << 20;
/// Where the program listens in the sandbox.
const PORT: u16 = 8080;
/// How long it may take until it listens.
const LISTENS: Duration = Duration::from_secs(30);

const PEER: &str = "the same client to the same program on the host's loopback";

/// Answers requests on a port of loopback, each connection by a thread: `/bytes/N` with so many, others with two.
const PROGRAM: &str = r"
import socket, sys, threading
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    piece, request = bytes(1 << 20), b''
    while True:
        got = connection.recv(65536)
        if not got:
            return
        request += got
        while b'\r\n\r\n' in request:
            head, request = request.split(b'\r\n\r\n', 1)
            path = head.split(b' ', 2)[1]
            size = int(path[7:]) if path.startswith(b'/bytes/') else 2
            connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n' % size)
            while size > 0:
                connection.sendall(piece[:size] if size < len(piece) else piece)
                size -= len(piece)
            if b'connection: close' in head.lower():
                connection.close()
                return
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=64)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
";

/// A program behind a port of a sandbox, and the same one on the host.
pub(crate) fn proxy(bed: &Bed) -> Result<Vec<Row>, String> {
    let served = Served::start(bed)?;
    let direct = Direct::start()?;
    let (mut through, mut straight) = (Samples::default(), Samples::default());
    let guest = bed.runtime.block_on(async {
        let guest = served.create().await?;
        let command = Command::new("python3").arg("-c").arg(PROGRAM).arg(PORT.to_string());
        let processes = guest.sandbox.require_processes().map_err(|error| error.to_string())?;
        let program = processes.spawn(&command, SpawnOptions::new()).await;
        let _program = program.map_err(|error| error.to_string())?;
        let port = PORT.to_string();
        let headers = headers(&guest, &port);
        let mut proxied = until_answered(served.address, &headers).await?;
        let mut plain = until_answered(direct.address, &[]).await?;
        for turn in 0..bed.rounds(ROUNDS) + WARM_UP {
            let begun = Instant::now();
            let outcome = ask(&mut plain, &[]).await;
            let of_plain = (begun.elapsed(), outcome);
            let begun = Instant::now();
            let outcome = ask(&mut proxied, &headers).await;
            if turn >= WARM_UP {
                through.took(begun.elapsed(), outcome);
                straight.took(of_plain.0, of_plain.1);
            }
        }
        Ok::<_, String>(guest)
    })?;
    let relay = plain::relay(direct.address)?;
    let [mut ours, mut theirs, mut relayed] = [(); 3].map(|()| Samples::rates());
    let (target, port) = (format!("/bytes/{BYTES}"), PORT.to_string());
    for _ in 0..bed.rounds(DOWNLOADS) {
        note(&mut theirs, plain::download(direct.address, &target, &[], BYTES));
        note(&mut relayed, plain::download(relay, &target, &[], BYTES));
        note(&mut ours, plain::download(served.address, &target, &headers(&guest, &port), BYTES));
    }
    Ok(vec![
        Row::new(
            "server-port",
            "a small answer of a program behind a port of a sandbox",
            "ms",
            through,
            Peer::measured(PEER, straight),
            Bar::AtMostMore(0.3),
        ),
        Row::new(
            "server-port",
            "512 MiB from there",
            "MB/s",
            ours.clone(),
            Peer::measured(PEER, theirs),
            Bar::AtLeastTimes(0.8),
        ),
        Row::new(
            "server-port",
            "the same, beside what any proxy costs",
            "MB/s",
            ours,
            Peer::measured("through a relay that only reads and writes, on the host", relayed),
            Bar::None,
        ),
    ])
}

fn headers<'a>(guest: &'a Guest, port: &'a str) -> [(&'a str, &'a str); 2] {
    [("e2b-sandbox-id", guest.sandbox.id().as_str()), ("e2b-sandbox-port", port)]
}

async fn ask(client: &mut Client, headers: &[(&str, &str)]) -> Result<(), String> {
    let (status, _) = client.ask("GET", "/", headers, "").await?;
    if status.is_success() { Ok(()) } else { Err(format!("the answer is {status}")) }
}

/// A connection that was answered: the program was only just started.
async fn until_answered(address: SocketAddr, headers: &[(&str, &str)]) -> Result<Client, String> {
    let end = Instant::now() + LISTENS;
    loop {
        let tried = match Client::connect(address).await {
            Ok(mut client) => ask(&mut client, headers).await.map(|()| client),
            Err(why) => Err(why),
        };
        match tried {
            Ok(client) => return Ok(client),
            Err(why) if Instant::now() >= end => return Err(format!("the program does not answer: {why}")),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// The program on the host.
struct Direct {
    child: Child,
    address: SocketAddr,
}

impl Direct {
    fn start() -> Result<Self, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|why| why.to_string())?;
        let address = listener.local_addr().map_err(|why| why.to_string())?;
        drop(listener);
        let mut command = HostCommand::new("python3");
        command.args(["-c", PROGRAM, &address.port().to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|why| format!("python3: {why}"))?;
        Ok(Self { child, address })
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
