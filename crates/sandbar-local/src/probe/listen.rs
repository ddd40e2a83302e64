use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

/// How long a caller may take to read the token.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers each connection to `port` of `localhost` with `token`, until it is killed: the service of a neighbour.
pub(super) fn serve(port: u16, token: &str) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        // A caller that is gone is its own matter.
        let _ = stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(token.as_bytes()));
    }
    Ok(())
}
