use std::io;

use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::guest::{Guest, reset};

/// Bytes that are moved at once, each way. Memory is taken as it is used: little by connections that move little.
const BUFFER: usize = 128 << 10;

/// Moves bytes both ways until both ends are done, those that were read already first. An end in one direction is passed on, and the other goes on;
/// a connection that breaks is broken at the other end too, so that nobody takes a part for the whole.
pub(crate) async fn relay(mut inside: Guest, read: &[u8], mut outside: TcpStream) {
    let moved = async {
        outside.write_all(read).await?;
        copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await?;
        Ok::<_, io::Error>(())
    };
    if moved.await.is_err() {
        reset(&outside);
        inside.reset();
    }
}
