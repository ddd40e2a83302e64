//! How long a transfer may stand still.

use std::time::Duration;

use http::Method;
use sandbar_core::{Error, Retry};
use tokio::time::{Instant, sleep_until};

use super::body::{Progress, whole};
use super::link::Link;
use super::rpc::{CALL, request};
use crate::error::unknown;

/// After how long a standstill the agent is asked whether it is still there. A slow disk pauses for seconds.
const STALL: Duration = Duration::from_secs(60);
/// How long a transfer may stand still while the agent is there. A MiB of an archive may be a GiB when it is unpacked, and a folder may have
/// millions of names that are put in order before the first byte: minutes, on a slow disk.
const LONGEST: Duration = Duration::from_secs(3600);
/// Where the agent says that it is there.
const HEALTH: &str = "/health";

/// Ends when it makes no sense any more to wait for the other side of a transfer: its agent does not answer, its sandbox does not run, or
/// nothing moved for [`LONGEST`]. Without `progress`, it counts from now.
pub(super) async fn ends(link: &Link, progress: Option<&Progress>, operation: &'static str) -> Error {
    let start = Instant::now();
    let mut bound = STALL;
    loop {
        match progress {
            Some(progress) => progress.stops_for(bound).await,
            None => sleep_until(start + bound).await,
        }
        if bound >= LONGEST {
            let why = format!("the agent did not go on for {} s", LONGEST.as_secs());
            return unknown(operation, link.id().as_str(), why).with_retry(Retry::OutcomeUnknown);
        }
        // A copy of the sandbox lets nothing move, and has its own bound.
        let is_held = link.is_held(operation);
        if !is_held && let Err(error) = is_there(link, operation).await {
            return error.with_retry(Retry::OutcomeUnknown);
        }
        bound += STALL;
    }
}

async fn is_there(link: &Link, operation: &'static str) -> Result<(), Error> {
    let request = request(Method::GET, HEALTH, None, &[], whole(""))?;
    let response = link.send(request, CALL, operation).await?;
    link.collect(response.into_body(), operation).await.map(drop)
}
