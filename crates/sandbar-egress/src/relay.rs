use std::io;

use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::guest::{Guest, reset};

/// Moves bytes both ways, at most `piece` at once, until both ends are done, those that were read already first. An end in one direction is passed on, and the other goes on;
/// a connection that breaks is broken at the other end too, so that nobody takes a part for the whole.
pub(crate) async fn relay(mut inside: Guest, read: &[u8], mut outside: TcpStream, piece: usize) {
    let moved = async {
        outside.write_all(read).await?;
        copy_bidirectional_with_sizes(&mut inside, &mut outside, piece, piece).await?;
        Ok::<_, io::Error>(())
    };
    if moved.await.is_err() {
        reset(&outside);
        inside.reset();
    }
}
