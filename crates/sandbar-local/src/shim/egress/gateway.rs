use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sandbar_core::{
    Destination, EgressCounters, EgressPolicy, ErrorKind, Explanation, GatewayState, Protocol, Result,
};
use sandbar_egress::{Gateway, Limits, Options, Sockets};
use sandbar_engine::network::NetworkSockets;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::super::log;
use super::super::shared::{Shared, hold};
use super::authority::interception;
use super::journal::Journal;
use super::routes::Routes;
use crate::ctl;
use crate::error::{fail, io_error};
use crate::home::{AssignedNames, SealedPolicy};

const START: &str = "start egress gateway";
const SET: &str = "set egress policy";

/// How long the gateway's thread may take to serve; it opens three files and a few sockets.
const BEGIN: Duration = Duration::from_secs(10);
/// How long the gateway's thread may take to end.
const END: Duration = Duration::from_secs(1);
/// How long a change of the policy may take: ten thousand routes take some tens of milliseconds, and flows that are cut two seconds at most.
const CHANGE: Duration = Duration::from_secs(20);

/// Between two looks at how the gateway is. A look is one number.
const LOOK: Duration = Duration::from_secs(2);
/// What sentences about rules begin with that are not in force; the gateway's too.
const LACKS: &str = "not in force is ";
/// Rules that an error names one by one.
const NAMED: usize = 3;

/// The gateway of a sandbox; none where this machine has no packet filter, or before it is started.
#[derive(Debug, Default)]
pub(in crate::shim) struct Egress {
    serving: Mutex<Option<Serving>>,
    /// Closes with the gateway's thread.
    ended: Mutex<Option<oneshot::Receiver<()>>>,
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
    /// Ends the gateway with all that it has open, and waits for that a little: who takes a sandbox down needs descriptors, and it may have them all.
    pub(in crate::shim) async fn stop(&self) {
        let ended = hold(&self.ended).take();
        drop(hold(&self.serving).take());
        if let Some(ended) = ended {
            // Nothing is ever sent: it closes.
            let _ = timeout(END, ended).await;
        }
    }

    fn serving(&self) -> Option<Serving> {
        hold(&self.serving).clone()
    }
}

/// Starts the gateway of a sandbox under the policy that stands in its folder and record. That it serves is the caller's to [`mark`].
///
/// A sandbox that ran already gets one without the rules that can't be had by now, and the record says so: it may be the sandbox itself that is
/// in their way.
pub(in crate::shim) async fn start(shared: &Arc<Shared>, sockets: NetworkSockets) -> Result<()> {
    let kept = kept(shared).map_err(|cause| io_error(START, "`egress.json`", cause))?;
    let policy = kept.open()?;
    let NetworkSockets { tcp, dns_udp, dns_tcp, routes, udp } = sockets;
    let mut routes = Routes::new(routes, &policy);
    let is_new = shared.look(|record| record.started_at.is_none());
    let (policy, unrouted) = open(&mut routes, START, policy);
    if is_new && let Some(error) = unrouted {
        return Err(error);
    }
    let journal = Journal::begin(shared).map_err(|cause| io_error(START, "`egress.jsonl`", cause))?;
    let (names, assigned) = AssignedNames::open(&shared.folder)
        .map_err(|cause| io_error(START, "`egress-names.jsonl`", cause))?;
    let sockets = Sockets { tcp, dns_udp, dns_tcp, udp };
    let options = Options {
        policy,
        limits: limits(),
        assigned,
        journal: Arc::new(names),
        sink: Arc::new(journal.clone()),
        interception: interception(START, &shared.folder)?,
    };
    let (stop, stopped) = oneshot::channel();
    let (begun, has_begun) = oneshot::channel();
    let of = Arc::downgrade(shared);
    let (ending, ended) = oneshot::channel::<()>();
    let work = move || {
        let _ending = ending;
        let served = serve(sockets, options, begun, stopped);
        let Some(shared) = of.upgrade() else { return };
        match served {
            Served::Stopped => {}
            Served::Broken(why) => {
                log::say(&format_args!("the egress gateway ended: {why}"));
                hold(&shared.egress.serving).take();
                mark(&shared);
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
    let unbound = gateway.lacks().map(str::to_owned);
    if is_new && let Some(why) = unbound {
        return Err(fail(ErrorKind::Unavailable, START, why));
    }
    let unrouted = unrouted.map(|error| error.message().to_owned());
    tell_lacks(shared, unrouted.into_iter().chain(unbound));
    let routes = Arc::new(Mutex::new(routes));
    *hold(&shared.egress.ended) = Some(ended);
    *hold(&shared.egress.serving) = Some(Serving { gateway, journal, routes, _stop: Arc::new(stop) });
    Ok(())
}

/// What a gateway may use: a quarter of what this process may open. Half is for published ports, a quarter for what the agent hands over.
fn limits() -> Limits {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Limits::within(usize::try_from(descriptors / 4).unwrap_or(usize::MAX))
}

/// Starts it where there should be one and is none: after a sleep in which the sandbox was taken over.
pub(in crate::shim) async fn start_again(shared: &Arc<Shared>) -> Result<()> {
    if shared.egress.serving().is_some() || shared.look(|record| record.egress.gateway.is_none()) {
        return Ok(());
    }
    let broken = |why: String| {
        fail(ErrorKind::Unavailable, START, format!("the agent does not hand over its network: {why}"))
    };
    let sockets = match ctl::ask(&shared.folder, &ctl::Op::Network, None).await {
        Ok(ctl::Outcome::Done(received)) => {
            ctl::checked_network(received).map_err(|cause| broken(format!("it gave {cause}")))?
        }
        Ok(ctl::Outcome::No(why)) => return Err(broken(why)),
        Err(failure) => return Err(broken(failure.to_string())),
    };
    start(shared, sockets).await?;
    mark(shared);
    Ok(())
}

/// Another gateway, for the sandbox as it is launched again: it has what is in force now.
pub(in crate::shim) async fn replace(shared: &Arc<Shared>, sockets: NetworkSockets) -> Result<()> {
    let _one = shared.egress.changing.lock().await;
    shared.egress.stop().await;
    start(shared, sockets).await?;
    mark(shared);
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

/// Opens the routes of a policy; where that does not come off, what is left of it, and what is to be said of the rest.
fn open(
    routes: &mut Routes,
    operation: &'static str,
    policy: EgressPolicy,
) -> (EgressPolicy, Option<sandbar_core::Error>) {
    let Err(cause) = routes.open(&policy) else { return (policy, None) };
    let (rest, left_out) = routes.without(&policy);
    let named: Vec<String> = left_out.iter().take(NAMED).map(|rule| format!("`{rule}`")).collect();
    let what = match left_out.len().saturating_sub(NAMED) {
        0 if named.is_empty() => "what the policy says of addresses".to_owned(),
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    };
    let error = not_routed(operation, &format!("{LACKS}{what}, and all else is"), cause);
    (rest, Some(error))
}

/// Says in the record what of the policy is not in force.
fn tell_lacks(shared: &Shared, lacks: impl Iterator<Item = String>) {
    for why in lacks {
        log::say(&why);
        let told = shared.update(|record| {
            let before = record.reason.take().filter(|before| !before.contains(&why));
            record.reason = Some(before.into_iter().chain([why]).collect::<Vec<_>>().join("; "));
        });
        if let Err(cause) = told {
            log::say(&format_args!("the record does not say what is not in force: {cause}"));
        }
    }
}

/// Takes back what [`tell_lacks`] said, once all of a policy is in force.
fn forget_lacks(shared: &Shared) {
    let lacks = |reason: &str| reason.contains(LACKS);
    if !shared.look(|record| record.reason.as_deref().is_some_and(lacks)) {
        return;
    }
    let told = shared.update(|record| {
        let reason = record.reason.take().unwrap_or_default();
        let others: Vec<&str> = reason.split("; ").filter(|reason| !lacks(reason)).collect();
        record.reason = (!others.is_empty()).then(|| others.join("; "));
    });
    if let Err(cause) = told {
        log::say(&format_args!("the record still says what was not in force: {cause}"));
    }
}

/// How the gateway of a sandbox that has one is.
pub(in crate::shim) fn state(shared: &Shared) -> GatewayState {
    match shared.egress.serving() {
        Some(serving) if !serving.gateway.is_frozen() => GatewayState::Serving,
        _ => GatewayState::Down,
    }
}

/// Looks from time to time whether the gateway's thread goes on, as long as the shim lives, and notes it. One that does not passes nothing on;
/// a change of the policy wakes it.
pub(in crate::shim) async fn watch(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if shared.look(|record| record.egress.gateway.is_none()) {
            continue;
        }
        mark(&shared);
    }
}

/// Notes how the gateway is. What can't be written is not the truth for long: whoever looks sees whether the shim lives.
pub(in crate::shim) fn mark(shared: &Shared) {
    let state = state(shared);
    if shared.look(|record| record.egress.gateway) == Some(state) {
        return;
    }
    if let Err(cause) = shared.update(|record| record.egress.gateway = Some(state)) {
        log::say(&format_args!("the record does not say how the gateway is: {cause}"));
    }
}

/// Puts another policy in force, and keeps it. What of it can't be had is left out, and the error says so; never is a wider one before it kept
/// for that. Only what can't be written is not in force: then the one before is, as on disk.
pub(in crate::shim) async fn set_policy(shared: &Shared, sealed: SealedPolicy) -> Result<()> {
    let egress = &shared.egress;
    let _one = egress.changing.lock().await;
    let serving = serving(shared, SET)?;
    let policy = sealed.open()?;
    let kept = kept(shared).map_err(not_kept)?;
    let before = serving.gateway.policy();
    serving.gateway.check_policy(&policy).await?;
    let (policy, unrouted) = open(&mut hold(&serving.routes), SET, policy);
    let set = timeout(CHANGE, serving.gateway.set_policy(&policy)).await.unwrap_or_else(|_| {
        let message = format!("the gateway did not take it within {} s", CHANGE.as_secs());
        Err(fail(ErrorKind::Timeout, SET, message))
    });
    // Also after an error.
    let in_force = serving.gateway.policy();
    let written = SealedPolicy::seal(in_force.clone())
        .ok_or_else(|| fail(ErrorKind::Unexpected, SET, "the value of a header is missing"))
        .and_then(|sealed| shared.folder.keep_policy(&sealed).map_err(not_kept))
        .and_then(|()| point_to_file(shared));
    let in_force = match &written {
        Ok(()) => in_force,
        Err(_) => follow_disk(shared, &serving, &kept).await,
    };
    if let Err(cause) = hold(&serving.routes).close(&in_force) {
        // The gateway refuses what comes by it.
        log::say(&format_args!("a route that is not needed any more stays: {cause}"));
    }
    // What was taken back was no change; what stays in spite of an error is one.
    if (set.is_ok() && written.is_ok()) || in_force != before {
        serving.gateway.tell_policy();
    }
    let done = written.and(set).and(unrouted.map_or(Ok(()), Err));
    if done.is_ok() {
        forget_lacks(shared);
    }
    done
}

/// Brings gateway and disk together after a change that did not come off, and answers what is in force then.
async fn follow_disk(shared: &Shared, serving: &Serving, before: &SealedPolicy) -> EgressPolicy {
    let differs = || kept(shared).map_or(true, |now| now != *before);
    if differs() && !shared.look(|record| record.egress.policy.is_some()) {
        // A full disk may have no room for this either; then what it has by now counts.
        let _ = shared.folder.keep_policy(before);
    }
    // Whoever can't read what is allowed allows nothing.
    let policy = kept(shared).and_then(|kept| kept.open().map_err(io::Error::other)).unwrap_or_default();
    if serving.gateway.policy() == policy {
        return policy;
    }
    if let Ok(Ok(())) = timeout(CHANGE, serving.gateway.set_policy(&policy)).await {
        return policy;
    }
    let _ = timeout(CHANGE, serving.gateway.set_policy(&EgressPolicy::DenyAll)).await;
    EgressPolicy::DenyAll
}

/// The policy that stands on disk: the one that readers get, and that a gateway starts with.
fn kept(shared: &Shared) -> io::Result<SealedPolicy> {
    if let Some(policy) = shared.look(|record| record.egress.policy.clone()) {
        return SealedPolicy::seal(policy).ok_or_else(|| io::Error::other("the record has no secrets"));
    }
    shared.folder.policy()?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn not_kept(cause: io::Error) -> sandbar_core::Error {
    io_error(SET, "`egress.json`", cause)
}

fn not_routed(operation: &'static str, what: &str, cause: io::Error) -> sandbar_core::Error {
    let is_refused = cause.kind() == io::ErrorKind::PermissionDenied;
    let error = io_error(operation, what, cause);
    error.with_hint(if is_refused {
        "run this as the user who made the sandbox, or as root with the capability `CAP_NET_ADMIN`; or allow hosts by name, which takes no route"
    } else {
        "set the policy again, or allow hosts by name, which takes no route"
    })
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
