use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{
    Command, CreateOptions, EgressPolicy, Lifetime, MainCommand, Result, Sandbox, SandboxProvider,
};
use sandbar_engine::handover::AGENT_PATH;

use super::surroundings::Neighbour;
use crate::error::fail;
use crate::id::random_text;
use crate::probe::{
    Attempt, Expect, HostPlace, LISTEN, Numbered, Outcome, PROBE_NAME, Raw, TcpAttempt, try_all,
};
use crate::provider::LocalProvider;

/// The port inside at which it serves.
const PORT: u16 = 8321;
/// How long it may live: longer than any check.
pub(super) const LIFETIME: Duration = Duration::from_secs(300);
/// How long its service may take to start.
const START: Duration = Duration::from_secs(10);
/// Characters of its token.
const TOKEN_LENGTH: usize = 24;

/// Makes another sandbox with a service that is published. The sandbox is there even where its service is not.
pub(super) async fn create(provider: &LocalProvider) -> Result<(Arc<dyn Sandbox>, String)> {
    let token = random_text(TOKEN_LENGTH)
        .map_err(|cause| crate::error::io_error("verify egress", "random numbers", cause))?;
    let serve = Command::new(AGENT_PATH).args([PROBE_NAME, LISTEN, &PORT.to_string(), &token]);
    let options = CreateOptions::new()
        .with_egress(EgressPolicy::DenyAll)
        .with_main(MainCommand::new(serve))
        .with_ports([PORT])
        .with_deadline(LIFETIME)
        .with_lifetime(Lifetime::Owned);
    Ok((provider.create(options).await?, token))
}

/// Where its service is, once the host got its word.
pub(super) async fn served(sandbox: &dyn Sandbox, token: String) -> Result<Neighbour> {
    let absent = |why: String| fail(sandbar_core::ErrorKind::Unavailable, "verify egress", why);
    let ports = sandbox.ports().ok_or_else(|| absent("no ports can be published".to_owned()))?;
    let mapping = ports.publish(PORT).await?;
    let address = mapping.host.trim_matches(['[', ']']).parse();
    let address =
        address.map_err(|_| absent(format!("`{}`, where it is published, is no address", mapping.host)))?;
    let published = SocketAddr::new(address, mapping.port);
    let reached = tokio::task::spawn_blocking({
        let token = token.clone();
        move || crate::wait::until::<()>(START, || Ok(answers(published, &token)))
    });
    match reached.await {
        Ok(Ok(true)) => Ok(Neighbour { published, port: PORT, token }),
        _ => Err(absent(format!("its service at `{published}` does not answer"))),
    }
}

fn answers(place: SocketAddr, token: &str) -> bool {
    let attempt = Attempt::Tcp(TcpAttempt {
        to: HostPlace::Address(place.ip()),
        port: place.port(),
        send: Vec::new(),
        expect: Expect::Token(Raw(token.into())),
        fast_open: false,
        patience_ms: 1000,
    });
    let mut reached = false;
    try_all(&[Numbered { id: 0, attempt }], |tried| reached = tried.outcome == Outcome::Reached);
    reached
}
