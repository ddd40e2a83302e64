//! Starts a web server in a sandbox, publishes its port on this machine, asks it for a page, and shows its log as it comes.
//!
//! `cargo build --release -p sandbar-cli && cargo run --release -p sandbar --example stream_a_server`

use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use sandbar::{
    Command, CreateOptions, Error, ErrorKind, FilesExt, GuestPath, Lifetime, PortMapping, ProcessEvent,
    SandboxExt, Signal, SpawnOptions,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PORT: u16 = 8000;
/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> sandbar::Result<()> {
    let provider = sandbar::connect("local:")?;
    let sandbox = provider.create(CreateOptions::new().with_lifetime(Lifetime::Owned)).await?;

    let page = GuestPath::new("/home/user/index.html")?;
    sandbox.files().write(&page, "<h1>from a sandbox</h1>\n".into()).await?;
    let server = Command::new("python3").args(["-u", "-m", "http.server", &PORT.to_string()]);
    let mut process = sandbox.require_processes()?.spawn(&server, SpawnOptions::new()).await?;

    let address = sandbox.require_ports()?.publish(PORT).await?;
    println!("port {PORT} inside is {}:{} here", address.host, address.port);
    println!("{}", fetch(&address).await?.lines().last().unwrap_or_default());

    process.control.signal(Signal::TERM).await?;
    while let Some(event) = process.events.next().await {
        match event? {
            ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes) => {
                print!("server: {}", String::from_utf8_lossy(&bytes));
            }
            ProcessEvent::Exit(exit) => println!("the server ended with {}", exit.status),
            _ => {}
        }
    }

    sandbox.destroy().await?;
    Ok(())
}

/// Asks for the page until the server answers.
async fn fetch(address: &PortMapping) -> sandbar::Result<String> {
    let started = Instant::now();
    loop {
        match try_fetch(address).await {
            Ok(answer) if !answer.is_empty() => return Ok(answer),
            Ok(_) | Err(_) if started.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(_) => return Err(Error::new(ErrorKind::Unavailable, "fetch", "the server says nothing")),
            Err(error) => return Err(Error::new(ErrorKind::Unavailable, "fetch", error.to_string())),
        }
    }
}

async fn try_fetch(address: &PortMapping) -> std::io::Result<String> {
    let host: IpAddr = address.host.parse().map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect((host, address.port)).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
