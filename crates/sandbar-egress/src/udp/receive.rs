use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{Decision, DecisionKind, DecisionReason, Destination, Protocol};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::flow::Conversation;
use super::packet;
use super::ports::Own;
use crate::event::ruled;
use crate::ruling::Ruling;
use crate::state::State;

/// Largest datagram.
pub(super) const DATAGRAM: usize = 64 << 10;
/// Datagrams of a flow that wait, as while its name is resolved. What comes beyond is lost, as datagrams are.
const WAITING: usize = 16;
/// Pause after a socket that could not be read.
const PAUSE: Duration = Duration::from_millis(50);

/// Who talks with whom.
type Pair = (SocketAddrV4, Ipv4Addr);

/// Takes what is sent to `port` of whatever address, and hands it to its flow.
pub(super) async fn receive(state: Arc<State>, socket: Arc<UdpSocket>, port: u16, own: Own) {
    let mut buffer = vec![0; DATAGRAM];
    let mut inboxes: HashMap<Pair, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut flows: JoinSet<Pair> = JoinSet::new();
    loop {
        let received = tokio::select! {
            Some(ended) = flows.join_next() => {
                // One that broke off is replaced when the next datagram finds it closed.
                if let Ok(pair) = ended {
                    inboxes.remove(&pair);
                }
                continue;
            }
            received = packet::receive(&socket, &mut buffer) => received,
        };
        let packet = match received {
            Ok(Some(packet)) => packet,
            Ok(None) => continue,
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };
        if own.has(packet.from.port()) {
            continue;
        }
        let pair = (packet.from, packet.to);
        let datagram = buffer[..packet.length].to_vec();
        if let Some(inbox) = inboxes.get(&pair).filter(|inbox| !inbox.is_closed()) {
            drop(inbox.try_send(datagram));
            continue;
        }
        let Some(conversation) = begin(&state, &socket, packet.from, packet.to, port) else { continue };
        let (inbox, arriving) = mpsc::channel(WAITING);
        drop(inbox.try_send(datagram));
        inboxes.insert(pair, inbox);
        flows.spawn(async move {
            conversation.run(arriving).await;
            pair
        });
    }
}

/// A flow that the policy allows; what it refuses is told.
fn begin(
    state: &Arc<State>,
    socket: &Arc<UdpSocket>,
    from: SocketAddrV4,
    to: Ipv4Addr,
    port: u16,
) -> Option<Conversation> {
    let refuse = |ruling: &Ruling, to: &Destination, detail: Option<&str>| {
        let told = ruled(DecisionKind::Udp, ruling, to, port);
        state.recorder.tell(Decision { detail: detail.map(ToOwned::to_owned), ..told });
    };
    let asked = state.seams.origin.of_datagram(to);
    let Some(destination) = state.names.destination(asked) else {
        let denied = Ruling::denied(DecisionReason::NotAllowed, None);
        refuse(&denied, &Destination::Address(asked.into()), Some("the address stands for no name"));
        return None;
    };
    let limited = |detail| refuse(&Ruling::denied(DecisionReason::Limit, None), &destination, Some(detail));
    if !state.may_begin() {
        limited("flows per second");
        return None;
    }
    let Some(flow) = state.flows.begin(Protocol::Udp, state.limits.udp_flows) else {
        limited("open UDP flows");
        return None;
    };
    flow.track().set_destination(&destination, port);
    let ruling = state.judge().decide(&destination, port, Protocol::Udp);
    if !ruling.is_allowed() {
        refuse(&ruling, &destination, None);
        return None;
    }
    let inside = (socket.clone(), from, to);
    Some(Conversation { state: state.clone(), flow, inside, destination, port, ruling })
}
