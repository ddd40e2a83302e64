use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};

use super::made::Made;
use crate::peek::{Alert, HelloFlaw, PeekError, hello};

const MAX: usize = 16 << 10;

fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[tokio::test(start_paused = true)]
async fn a_hello_in_small_pieces_is_read_and_kept() {
    let bytes = Made::naming(b"allowed.test").in_records(&[3, 40]).bytes();
    let sent = [&bytes[..], b"more"].concat();
    let (mut client, mut gateway) = tokio::io::duplex(1);
    let (read, ()) = tokio::join!(
        async {
            let (hello, read) = hello(&mut gateway, deadline(), MAX).await.unwrap();
            assert_eq!(hello.server_name.as_deref(), Some(&b"allowed.test"[..]));
            // The client writes on.
            tokio::io::copy(&mut gateway, &mut tokio::io::sink()).await.ok();
            read
        },
        async move {
            for byte in sent {
                client.write_all(&[byte]).await.unwrap();
                sleep(Duration::from_millis(5)).await;
            }
        }
    );
    assert_eq!(read, bytes);
}

#[tokio::test(start_paused = true)]
async fn a_hello_that_does_not_come_ends() {
    let (mut client, mut gateway) = tokio::io::duplex(64);
    client.write_all(&[22, 3, 1]).await.unwrap();
    assert!(matches!(hello(&mut gateway, deadline(), MAX).await, Err(PeekError::TooSlow)));
    drop(client);
    assert!(matches!(hello(&mut gateway, deadline(), MAX).await, Err(PeekError::Closed)));
    let (mut client, mut gateway) = tokio::io::duplex(64);
    client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let refused = hello(&mut gateway, deadline(), MAX).await;
    assert!(matches!(refused, Err(PeekError::Flaw(HelloFlaw::NotTls))));
}

#[test]
fn an_alert_is_a_record_that_ends_the_connection() {
    assert_eq!(Alert::of(HelloFlaw::OtherName).record(), [21, 3, 3, 0, 2, 2, 112]);
    assert_eq!(Alert::DENIED.record()[5..], [2, 49]);
}
