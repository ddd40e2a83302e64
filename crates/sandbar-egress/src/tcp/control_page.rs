use std::io;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

use super::parting::part;
use crate::control::CONTROL_BODY;
use crate::guest::Guest;

/// Longest request that is read.
const REQUEST: usize = 8 << 10;

/// Answers one request, whatever it asks for.
pub(super) async fn serve(mut guest: Guest, deadline: Instant) -> io::Result<()> {
    let mut request = Vec::new();
    let read = async {
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            if request.len() > REQUEST || guest.read_buf(&mut request).await? == 0 {
                return Ok::<_, io::Error>(false);
            }
        }
        Ok(true)
    };
    if !timeout_at(deadline, read).await.map_err(|_| io::ErrorKind::TimedOut)?? {
        return Ok(());
    }
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{CONTROL_BODY}",
        CONTROL_BODY.len()
    );
    part(guest, answer.as_bytes()).await;
    Ok(())
}
