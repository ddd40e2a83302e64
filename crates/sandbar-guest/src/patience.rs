//! How long a transfer may stand still.

use std::time::Duration;

use http::Method;
use sandbar_core::{Error, Retry};
use tokio::time::{Instant, sleep_until};

use crate::body::{Progress, whole};
use crate::client::GuestClient;
use crate::operation::Operation;
use crate::rpc::{CALL, request};

/// After how long a standstill the agent is asked whether it is still there. A slow disk pauses for seconds.
const STALL: Duration = Duration::from_secs(60);
/// How long a transfer may stand still while the agent is there. A MiB of an archive may be a GiB when it is unpacked, and a folder may have
/// millions of names that are put in order before the first byte: minutes, on a slow disk.
const LONGEST: Duration = Duration::from_secs(3600);
/// Where the agent says that it is there.
const HEALTH: &str = "/health";

/// Ends when it makes no sense any more to wait for the other side of a transfer: its agent does not answer, its sandbox does not run, or
/// nothing moved for [`LONGEST`]. Without `progress`, it counts from now.
pub(crate) async fn ends(client: &GuestClient, progress: Option<&Progress>, operation: Operation) -> Error {
    let start = Instant::now();
    let mut bound = STALL;
    loop {
        match progress {
            Some(progress) => progress.stops_for(bound).await,
            None => sleep_until(start + bound).await,
        }
        if bound >= LONGEST {
            let why = format!("the agent did not go on for {} s", LONGEST.as_secs());
            return client.unknown(operation, why);
        }
        // A copy of the sandbox lets nothing move, and has its own bound.
        let is_held = client.transport.is_held(operation.name);
        if !is_held && let Err(error) = is_there(client, operation).await {
            return error.with_retry(Retry::OutcomeUnknown);
        }
        bound += STALL;
    }
}

async fn is_there(client: &GuestClient, operation: Operation) -> Result<(), Error> {
    let request = request(Method::GET, HEALTH, None, &[], whole(""), operation)?;
    let response = client.send(request, CALL, operation).await?;
    client.collect(response.into_body(), operation).await.map(drop)
}
