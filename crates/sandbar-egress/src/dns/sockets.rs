use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::responder::Responder;
use crate::dontwait;

/// Largest datagram that is read: far more than a question has.
const DATAGRAM: usize = 4096;
/// How long a connection may take for its next question, and for taking an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a datagram may wait for room.
const SEND: Duration = Duration::from_millis(100);
/// Largest question by TCP: far more than any has.
const QUESTION: usize = 4096;
/// Pause after a socket that could not be used, so that one that stays so costs little.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers datagrams.
pub(crate) async fn serve_udp(socket: UdpSocket, responder: Arc<Responder>) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        match dontwait::receive(&socket, &mut buffer).await {
            Ok((length, from)) => {
                if let Some(answer) = responder.answer(&buffer[..length]) {
                    // An answer that can't be sent is asked for again.
                    drop(timeout(SEND, dontwait::send(&socket, &answer, from)).await);
                }
            }
            // A peer that is gone shows as an error of the next call.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Answers connections, so many at once.
pub(crate) async fn serve_tcp(listener: TcpListener, responder: Arc<Responder>, most: usize) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < most => match accepted {
                Ok((stream, _)) => drop(open.spawn(converse(stream, responder.clone()))),
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
}

/// Ends when the client does, or is too slow.
async fn converse(mut stream: TcpStream, responder: Arc<Responder>) {
    while let Ok(Ok(true)) = timeout(PATIENCE, exchange(&mut stream, &responder)).await {}
}

/// One question; whether another may come.
async fn exchange(stream: &mut TcpStream, responder: &Responder) -> io::Result<bool> {
    let length = usize::from(stream.read_u16().await?);
    if length > QUESTION {
        return Ok(false);
    }
    let mut question = vec![0; length];
    stream.read_exact(&mut question).await?;
    let Some(answer) = responder.answer(&question) else { return Ok(false) };
    let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), &*answer].concat()).await?;
    Ok(true)
}
