use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbar_core::{
    DecisionKind, DecisionReason, Destination, EgressCounters, EgressPolicy, Error, ErrorKind, Explanation,
    Protocol, Result, Verdict,
};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::control::GATEWAY_ADDRESS;
use crate::dns::{Responder, serve_tcp, serve_udp};
use crate::event::{DecisionSink, Recorder, decision};
use crate::heartbeat;
use crate::intercept::{Authority, Trust};
use crate::judge::{Judge, Spelled};
use crate::limits::Limits;
use crate::names::{Journal, Names};
use crate::pool::{Assignment, Pool};
use crate::seams::Seams;
use crate::state::State;
use crate::tcp;
use crate::udp::{Lacking, UdpPorts};

#[cfg(test)]
mod tests;

const SET: &str = "set egress policy";

/// How often what was held back of decisions is looked at, and the gateway says that it goes on.
const TICK: Duration = Duration::from_secs(1);

/// How long the gateway's thread may be without a tick before it counts as frozen: far longer than a busy machine lets it wait.
const FROZEN: Duration = Duration::from_secs(5);

/// Between two looks whether a thread that was woken goes on.
const STEP: Duration = Duration::from_millis(5);

/// Rules that an error names one by one.
const NAMED: usize = 3;

/// Descriptors that are left to the rest of the process, and to the resolver.
const RESERVED: usize = 256;

/// Sockets that were made in the sandbox's network namespace. Copies are held inside, so that nothing there can take over their ports.
#[derive(Debug)]
pub struct Sockets {
    /// Listens for all TCP connections, which the packet filter sends there.
    pub tcp: OwnedFd,
    /// The resolver's, for datagrams.
    pub dns_udp: OwnedFd,
    /// The resolver's, for connections.
    pub dns_tcp: OwnedFd,
    /// Datagram sockets without a port, or with the one that a gateway before this gave it; one for each port that rules for UDP ever name.
    pub udp: Vec<OwnedFd>,
}

/// What a gateway starts with.
pub struct Options {
    /// The policy.
    pub policy: EgressPolicy,
    /// What the sandbox may use.
    pub limits: Limits,
    /// What a gateway of this sandbox assigned before, in order.
    pub assigned: Vec<Assignment>,
    /// Where assignments are written down.
    pub journal: Arc<dyn Journal>,
    /// Where decisions go.
    pub sink: Arc<dyn DecisionSink>,
    /// What TLS is read with. Without it, a policy with a rule that injects headers is refused.
    pub interception: Option<Interception>,
}

/// What TLS is read with, for rules that inject headers.
#[derive(Clone, Debug)]
pub struct Interception {
    /// Whom the sandbox trusts.
    pub authority: Arc<Authority>,
    /// Whom the gateway trusts.
    pub trust: Trust,
}

/// A gateway that serves. It stops when the last handle is dropped: then the sandbox has no network.
#[derive(Clone)]
pub struct Gateway {
    state: Arc<State>,
    serving: Arc<Serving>,
}

struct Serving {
    /// One policy after the other.
    udp: Mutex<UdpPorts>,
    /// Second handles of what connections are accepted from.
    listeners: [std::net::TcpListener; 2],
    /// What the policy that it started with says and is not in force.
    lacks: Option<String>,
    _tasks: JoinSet<()>,
}

impl Gateway {
    /// Starts to serve, in the current runtime and in this process's network namespace. What it [lacks](Self::lacks) of the policy is not in force.
    pub fn start(sockets: Sockets, options: Options) -> Result<Self> {
        Self::start_on(sockets, options, Seams::of_host())
    }

    pub(crate) fn start_on(sockets: Sockets, options: Options, seams: Seams) -> Result<Self> {
        const OPERATION: &str = "start egress gateway";
        let failed = |what: &'static str| {
            move |cause: io::Error| {
                Error::new(ErrorKind::Unexpected, OPERATION, format!("{what} can't be used"))
                    .with_source(cause)
            }
        };
        let Options { policy, mut limits, assigned, journal, sink, interception } = options;
        limits.connections = limits.connections.min(room(&limits));
        let judge = Judge::new(&policy)?;
        admit(OPERATION, &policy, interception.as_ref())?;
        let spent = assigned.iter().map(|assignment| match judge.serves(&assignment.name).spelled {
            Spelled::Below(bytes) => u64::try_from(bytes).unwrap_or(u64::MAX),
            Spelled::Full | Spelled::Not => 0,
        });
        let spent = spent.fold(0, u64::saturating_add);
        let pool = Pool::restore(assigned, limits.names)?;
        let names = Names::new(pool, spent, &limits, journal);
        let state = Arc::new(State::new(judge, names, limits, Recorder::new(sink), seams, interception));
        let Sockets { tcp, dns_udp, dns_tcp, udp } = sockets;
        let both = (heartbeat::handle(&tcp), heartbeat::handle(&dns_tcp));
        let listeners = [
            both.0.map_err(failed("the listening socket"))?,
            both.1.map_err(failed("the resolver's listening socket"))?,
        ];
        let listener = listener(tcp).map_err(failed("the listening socket"))?;
        let dns_udp = datagrams(dns_udp).map_err(failed("the resolver's datagram socket"))?;
        let dns_tcp = self::listener(dns_tcp).map_err(failed("the resolver's listening socket"))?;
        let mut udp = UdpPorts::new(udp).map_err(failed("a datagram socket"))?;
        udp.check(&state.judge())?;
        let lacks = match udp.serve(&state, &state.judge()) {
            None => None,
            Some(lacking) => {
                let (rest, error) = without(OPERATION, state.judge().policy(), lacking);
                state.put(Judge::new(&rest)?);
                Some(error.message().to_owned())
            }
        };

        let responder = Arc::new(Responder::new(state.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(tcp::accept(listener, state.clone()));
        tasks.spawn(serve_udp(dns_udp, responder.clone()));
        tasks.spawn(serve_tcp(dns_tcp, responder, state.limits.question_connections));
        tasks.spawn(tick(state.clone()));
        let serving = Serving { udp: Mutex::new(udp), listeners, lacks, _tasks: tasks };
        Ok(Self { state, serving: Arc::new(serving) })
    }

    /// What of the policy that it started with is not in force, and why; nothing where all of it is.
    pub fn lacks(&self) -> Option<&str> {
        self.serving.lacks.as_deref()
    }

    /// Whether its thread has not gone on for a while: then nothing passes, and what is to end does not.
    pub fn is_frozen(&self) -> bool {
        self.state.heartbeat.quiet_for() > FROZEN
    }

    /// Lets its thread go on where that waits for a connection, as the sandbox can bring about by its copies of the listeners. From whichever
    /// thread.
    pub async fn thaw(&self) -> io::Result<()> {
        let begun = Instant::now();
        let woken = self.serving.listeners.each_ref().map(heartbeat::wake);
        // A listener that listens again too early is waited for as before.
        while self.state.heartbeat.quiet_for() > begun.elapsed() && begun.elapsed() < TICK * 2 {
            tokio::time::sleep(STEP).await;
        }
        let resumed = self.serving.listeners.each_ref().map(heartbeat::resume);
        woken.into_iter().chain(resumed).collect()
    }

    /// The policy in force.
    pub fn policy(&self) -> EgressPolicy {
        self.state.judge().policy().clone()
    }

    /// Refuses a policy that is never put in force here.
    pub async fn check_policy(&self, policy: &EgressPolicy) -> Result<()> {
        let udp = self.serving.udp.lock().await;
        self.compile(&udp, policy).map(drop)
    }

    /// Puts another policy in force, at once; flows that it no longer allows are cut before this returns.
    ///
    /// One that [`Gateway::check_policy`] refuses leaves the one before in force. After any other error this one is, but for rules that can't be
    /// had, which the error names: nothing inside can keep a wider one. [`Gateway::policy`] is what is in force then.
    ///
    /// It is no decision yet: see [`Gateway::tell_policy`].
    pub async fn set_policy(&self, policy: &EgressPolicy) -> Result<()> {
        let mut udp = self.serving.udp.lock().await;
        let judge = self.compile(&udp, policy)?;
        let (judge, lacks) = match udp.serve(&self.state, &judge) {
            None => (judge, None),
            Some(lacking) => {
                let (rest, error) = without(SET, policy, lacking);
                (Judge::new(&rest)?, Some(error))
            }
        };
        let mut open = self.state.replace(judge).await;
        if !open.is_empty() {
            // A listener that can't go on afterwards has ended its wait all the same.
            let _ = self.thaw().await;
            open = self.state.flows.await_end(open).await;
        }
        match (open.len(), lacks) {
            (0, None) => Ok(()),
            (0, Some(error)) => Err(error),
            (open, _) => Err(uncut(open)),
        }
    }

    fn compile(&self, udp: &UdpPorts, policy: &EgressPolicy) -> Result<Judge> {
        let judge = Judge::new(policy)?;
        admit(SET, policy, self.state.interception.as_ref())?;
        udp.check(&judge)?;
        Ok(judge)
    }

    /// Tells that the policy in force is another one now. For whoever puts policies in force, once it is certain that this one stays.
    pub fn tell_policy(&self) {
        self.state.recorder.tell(sandbar_core::Decision {
            detail: Some(self.state.judge().policy().kind().to_owned()),
            ..decision(DecisionKind::Policy, Verdict::Allowed, DecisionReason::PolicySet)
        });
    }

    /// What was counted since it started.
    pub fn counters(&self) -> EgressCounters {
        let open = u64::try_from(self.state.flows.count()).unwrap_or(u64::MAX);
        self.state.recorder.counters().read(open)
    }

    /// What would be decided about a connection, and why. Nothing is connected or resolved. An address that stands for a name in this sandbox means that.
    pub fn explain(&self, destination: &Destination, port: u16, protocol: Protocol) -> Explanation {
        let judge = self.state.judge();
        if let Destination::Address(IpAddr::V4(address)) = destination
            && Pool::is_synthetic(*address)
        {
            return self.explain_synthetic(&judge, *address, port, protocol);
        }
        let explained = judge.explain(destination, port, protocol);
        let (reason, why) = match destination {
            Destination::Address(address) if explained.verdict == Verdict::Allowed => {
                if address.is_ipv6() {
                    (DecisionReason::NotAllowed, "a sandbox has no IPv6; a host by name is reached by either")
                } else if self.state.seams.network.is_own(*address).unwrap_or(true) {
                    (DecisionReason::ForbiddenAddress, "the address is this machine's own")
                } else {
                    return explained;
                }
            }
            _ => return explained,
        };
        let sentence =
            format!("`{destination}` at port {port} by {protocol} is denied: {why}. A retry will not help.");
        Explanation { verdict: Verdict::Denied, reason, rule: None, sentence }
    }

    fn explain_synthetic(
        &self,
        judge: &Judge,
        address: Ipv4Addr,
        port: u16,
        protocol: Protocol,
    ) -> Explanation {
        if let Some(name) = self.state.names.destination(address) {
            let explained = judge.explain(&name, port, protocol);
            let sentence = format!("`{address}` stands for `{name}` in this sandbox. {}", explained.sentence);
            return Explanation { sentence, ..explained };
        }
        let is_gateway = address == GATEWAY_ADDRESS;
        let reason = if is_gateway { DecisionReason::GatewayItself } else { DecisionReason::NotAllowed };
        let sentence = format!(
            "`{address}` at port {port} by {protocol} is denied: it stands for no name in this sandbox, and {}. A retry will not help.",
            reason.sentence()
        );
        Explanation { verdict: Verdict::Denied, reason, rule: None, sentence }
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// What was assigned, in order.
    pub fn assignments(&self) -> Vec<Assignment> {
        self.state.names.snapshot()
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("policy", &self.policy.kind())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Connections that this process has descriptors for: two each, and one for each UDP flow.
fn room(limits: &Limits) -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    (most.saturating_sub(limits.udp_flows + RESERVED) / 2).max(1)
}

/// Refuses rules that inject what can't be injected: a request would go out without it.
fn admit(operation: &'static str, policy: &EgressPolicy, interception: Option<&Interception>) -> Result<()> {
    let EgressPolicy::Rules(rules) = policy else { return Ok(()) };
    for rule in rules.allow.iter().filter(|rule| !rule.inject.is_empty()) {
        if interception.is_none() {
            let why =
                "it injects a header, and the sandbox was made without a certificate authority for that";
            return Err(Error::unsupported(operation, format!("rule `{rule}`"), why)
                .with_hint("make a sandbox with a policy that injects a header"));
        }
        if let Some(header) = rule.inject.iter().find(|header| header.reveal().is_none()) {
            let message = format!("rule `{rule}` injects header `{}` without a value", header.header());
            return Err(Error::invalid(operation, message)
                .with_hint("a policy that is read back has no values: give them again"));
        }
    }
    Ok(())
}

/// A policy without the rules for UDP whose ports can't be had, and what is to be said of that.
fn without(operation: &'static str, policy: &EgressPolicy, lacking: Lacking) -> (EgressPolicy, Error) {
    let mut rest = policy.clone();
    let mut left_out = Vec::new();
    if let EgressPolicy::Rules(rules) = &mut rest {
        rules.allow.retain(|rule| {
            let lacks =
                rule.protocol == Protocol::Udp && lacking.ports.iter().any(|port| rule.ports.contains(*port));
            if lacks {
                left_out.push(format!("`{rule}`"));
            }
            !lacks
        });
    }
    let more = left_out.len().saturating_sub(NAMED);
    left_out.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let ports: Vec<String> = lacking.ports.iter().map(ToString::to_string).collect();
    let message = format!(
        "not in force is {}{more}, and all else is: UDP port {} of the sandbox can't be had: {}",
        left_out.join(", "),
        ports.join(", "),
        lacking.cause
    );
    let error = Error::new(ErrorKind::Unavailable, operation, message)
        .with_hint("a program in the sandbox may have bound it: end that and set the policy again")
        .with_source(lacking.cause);
    (rest, error)
}

fn uncut(open: usize) -> Error {
    let message = format!(
        "the policy is in force, but {open} flows that it no longer allows did not end: the gateway's thread does not go on"
    );
    Error::new(ErrorKind::Timeout, SET, message).with_hint(
        "they end before the gateway passes on anything; a sandbox that does this is best destroyed",
    )
}

async fn tick(state: Arc<State>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        state.heartbeat.beat();
        state.recorder.flush(Instant::now());
    }
}

fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

pub(crate) fn datagrams(fd: OwnedFd) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::from(fd);
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
