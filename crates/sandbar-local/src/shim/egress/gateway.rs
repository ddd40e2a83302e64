use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandbar_core::{
    Destination, EgressCounters, EgressPolicy, ErrorKind, Explanation, GatewayState, Protocol, Result,
};
use sandbar_egress::{Gateway, Limits, Options, Sockets};
use sandbar_engine::network::NetworkSockets;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::log;
use super::super::shared::{Shared, hold};
use super::journal::Journal;
use super::routes::Routes;
use crate::error::{fail, io_error};
use crate::home::{AssignedNames, SealedPolicy};

const START: &str = "start egress gateway";
const SET: &str = "set egress policy";

/// How long the gateway's thread may take to serve; it opens three files and a few sockets.
const BEGIN: Duration = Duration::from_secs(10);
/// How long a change of the policy may take: ten thousand routes take some tens of milliseconds, and flows that are cut two seconds at most.
const CHANGE: Duration = Duration::from_secs(20);

/// The gateway of a sandbox; none where this machine has no packet filter, or before it is started.
#[derive(Debug, Default)]
pub(in crate::shim) struct Egress {
    serving: Mutex<Option<Serving>>,
    /// Held while the policy changes: one change at a time.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Serving {
    gateway: Gateway,
    journal: Journal,
    routes: Arc<Mutex<Routes>>,
    /// Where it closes, the thread ends.
    _stop: Arc<oneshot::Sender<()>>,
}

impl Egress {
    fn serving(&self) -> Option<Serving> {
        hold(&self.serving).clone()
    }
}

/// Starts the gateway of a sandbox under the policy that stands in its folder and record.
pub(in crate::shim) async fn start(shared: &Arc<Shared>, sockets: NetworkSockets) -> Result<()> {
    let policy = if let Some(policy) = shared.look(|record| record.egress.policy.clone()) {
        policy
    } else {
        let kept = shared.folder.policy().map_err(|cause| io_error(START, "`egress.json`", cause))?;
        let missing = || fail(ErrorKind::Unexpected, START, "the policy of the sandbox is not kept");
        kept.ok_or_else(missing)?.open()?
    };
    let NetworkSockets { tcp, dns_udp, dns_tcp, routes, udp } = sockets;
    let mut routes = Routes::new(routes, &policy);
    routes.open(&policy).map_err(|cause| io_error(START, "a route", cause))?;
    let journal = Journal::begin(shared).map_err(|cause| io_error(START, "`egress.jsonl`", cause))?;
    let (names, assigned) = AssignedNames::open(&shared.folder)
        .map_err(|cause| io_error(START, "`egress-names.jsonl`", cause))?;
    let sockets = Sockets { tcp, dns_udp, dns_tcp, udp };
    let options = Options {
        policy,
        limits: Limits::default(),
        assigned,
        journal: Arc::new(names),
        sink: Arc::new(journal.clone()),
        // Until a sandbox has an authority of its own, a rule that injects headers is refused.
        interception: None,
    };
    let (stop, stopped) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let of = Arc::downgrade(shared);
    let work = move || {
        let served = serve(sockets, options, begun, stopped);
        let Some(shared) = of.upgrade() else { return };
        match served {
            Served::Stopped => {}
            Served::Broken(why) => {
                log::say(&format_args!("the egress gateway ended: {why}"));
                hold(&shared.egress.serving).take();
                mark(&shared, GatewayState::Down);
            }
        }
    };
    let thread = std::thread::Builder::new().name("sandbar-gateway".to_owned()).stack_size(super::STACK);
    thread.spawn(work).map_err(|cause| io_error(START, "a thread", cause))?;
    let gateway = match timeout(BEGIN, has_begun).await {
        Ok(Ok(gateway)) => gateway?,
        Ok(Err(_)) => return Err(fail(ErrorKind::Unexpected, START, "its thread ended")),
        Err(_) => {
            let message = format!("it did not serve within {} s", BEGIN.as_secs());
            return Err(fail(ErrorKind::Timeout, START, message));
        }
    };
    let routes = Arc::new(Mutex::new(routes));
    *hold(&shared.egress.serving) = Some(Serving { gateway, journal, routes, _stop: Arc::new(stop) });
    mark(shared, GatewayState::Serving);
    Ok(())
}

enum Served {
    /// Nobody wants it any more.
    Stopped,
    Broken(String),
}

/// Serves on this thread until nobody holds the other end of `stopped`.
fn serve(
    sockets: Sockets,
    options: Options,
    begun: oneshot::Sender<Result<Gateway>>,
    stopped: oneshot::Receiver<()>,
) -> Served {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let _ = begun.send(Err(io_error(START, "its runtime", cause)));
            return Served::Stopped;
        }
    };
    let work = std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            let started = Gateway::start(sockets, options);
            let serving = started.as_ref().ok().cloned();
            let _ = begun.send(started);
            if serving.is_some() {
                let _ = stopped.await;
            }
        });
    });
    match std::panic::catch_unwind(work) {
        Ok(()) => Served::Stopped,
        Err(_) => Served::Broken("it panicked".to_owned()),
    }
}

/// Notes how the gateway is. What can't be written is not the truth for long: whoever looks sees whether the shim lives.
fn mark(shared: &Shared, state: GatewayState) {
    if shared.look(|record| record.egress.gateway) == Some(state) {
        return;
    }
    if let Err(cause) = shared.update(|record| record.egress.gateway = Some(state)) {
        log::say(&format_args!("the record does not say how the gateway is: {cause}"));
    }
}

/// Puts another policy in force, and keeps it. After an error the one before is in force.
pub(in crate::shim) async fn set_policy(shared: &Shared, sealed: SealedPolicy) -> Result<()> {
    let egress = &shared.egress;
    let _one = egress.changing.lock().await;
    let serving = serving(shared, SET)?;
    let policy = sealed.open()?;
    let before = serving.gateway.policy();
    let not_kept = |cause: io::Error| io_error(SET, "`egress.json`", cause);
    // What a file says that the record does not point to counts for nothing, so this is no change yet where there was none before.
    let kept = shared.folder.policy().map_err(not_kept)?;
    let routed = hold(&serving.routes).open(&policy);
    if let Err(cause) = routed {
        let _ = hold(&serving.routes).close(&before);
        return Err(io_error(SET, "a route", cause));
    }
    let changed = match timeout(CHANGE, serving.gateway.set_policy(&policy)).await {
        Ok(Ok(())) => {
            shared.folder.keep_policy(&sealed).map_err(not_kept).and_then(|()| point_to_file(shared))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let message = format!("the gateway did not take it within {} s", CHANGE.as_secs());
            Err(fail(ErrorKind::Timeout, SET, message))
        }
    };
    if let Err(error) = changed {
        // The disk and the gateway are to say the same; the stricter side wins where not even that works.
        let undone = match timeout(CHANGE, serving.gateway.set_policy(&before)).await {
            Ok(undone) => undone.is_ok(),
            Err(_) => false,
        };
        let kept = kept.map_or(Ok(()), |kept| shared.folder.keep_policy(&kept));
        if !undone || kept.is_err() {
            let _ = timeout(CHANGE, serving.gateway.set_policy(&EgressPolicy::DenyAll)).await;
        }
        let _ = hold(&serving.routes).close(&before);
        return Err(error);
    }
    if let Err(cause) = hold(&serving.routes).close(&policy) {
        // The gateway refuses what comes by it.
        log::say(&format_args!("a route that is not needed any more stays: {cause}"));
    }
    Ok(())
}

fn point_to_file(shared: &Shared) -> Result<()> {
    if shared.look(|record| record.egress.policy.is_none()) {
        return Ok(());
    }
    shared.update(|record| record.egress.policy = None).map_err(|cause| io_error(SET, "`record.json`", cause))
}

/// What was counted, once all that was decided so far is in the log.
pub(in crate::shim) async fn read(shared: &Shared) -> Result<EgressCounters> {
    let serving = serving(shared, "read egress")?;
    serving.journal.flush().await;
    Ok(serving.gateway.counters())
}

/// What would be decided.
pub(in crate::shim) fn explain(
    shared: &Shared,
    destination: &Destination,
    port: u16,
    protocol: Protocol,
) -> Result<Explanation> {
    Ok(serving(shared, "explain egress")?.gateway.explain(destination, port, protocol))
}

fn serving(shared: &Shared, operation: &'static str) -> Result<Serving> {
    shared.egress.serving().ok_or_else(|| {
        let id = shared.folder.id();
        if shared.look(|record| record.egress.gateway.is_some()) {
            let message = format!("the egress gateway of sandbox `{id}` is down, so it has no network");
            return fail(ErrorKind::Unavailable, operation, message).with_hint("make a new sandbox");
        }
        let why = "it was made without a gateway, so nothing leaves it";
        sandbar_core::Error::unsupported(operation, format!("egress of sandbox `{id}`"), why)
            .with_backend(crate::config::BACKEND)
            .with_hint("`sandbar doctor` says what this machine lacks; make a new sandbox afterwards")
    })
}
