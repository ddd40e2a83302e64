use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::guest::Guest;

/// How long a program may take to read the last words. To close before it does so would take them away from it.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes that are read meanwhile and thrown away.
const THROWN_AWAY: usize = 64 << 10;

/// Ends a connection with these words.
pub(super) async fn part(mut guest: Guest, words: &[u8]) {
    let said = async {
        guest.write_all(words).await?;
        guest.shutdown().await?;
        let mut rest = vec![0; THROWN_AWAY];
        let mut left = THROWN_AWAY;
        while left > 0 {
            match guest.read(&mut rest[..left]).await? {
                0 => break,
                read => left -= read,
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // Who is gone, or does not listen, misses them.
    drop(timeout(PATIENCE, said).await);
}
