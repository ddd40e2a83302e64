use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional_with_sizes};

/// Bytes that are moved at once, each way. Memory is taken as it is used: little by connections that move little.
const BUFFER: usize = 128 << 10;

/// Moves bytes both ways until both ends are done, those that were read already first. An end in one direction is passed on, and the other goes on.
pub(crate) async fn relay(
    mut inside: impl AsyncRead + AsyncWrite + Unpin,
    read: &[u8],
    mut outside: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    outside.write_all(read).await?;
    copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await?;
    Ok(())
}
