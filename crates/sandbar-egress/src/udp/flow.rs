use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandbar_core::{Decision, DecisionKind, DecisionReason, Destination, Protocol, Verdict};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::packet;
use super::receive::DATAGRAM;
use crate::connect::Way;
use crate::dial::DialError;
use crate::event::ruled;
use crate::flows::Flow;
use crate::ruling::Ruling;
use crate::state::State;

/// How long a datagram may wait for room on its way out.
const SEND: Duration = Duration::from_millis(100);

/// Datagrams between a socket of the sandbox and a host outside.
pub(super) struct Conversation {
    pub(super) state: Arc<State>,
    pub(super) flow: Flow,
    /// The socket, whom it talks to inside, and which address it has for them.
    pub(super) inside: (Arc<UdpSocket>, SocketAddrV4, Ipv4Addr),
    pub(super) destination: Destination,
    pub(super) port: u16,
    pub(super) ruling: Ruling,
}

impl Conversation {
    /// Until it is cut, or quiet for long.
    pub(super) async fn run(self, mut arriving: mpsc::Receiver<Vec<u8>>) {
        let track = self.flow.track().clone();
        let way =
            Way::new(self.state.clone(), track.clone(), self.destination.clone(), self.port, Protocol::Udp);
        let outside = tokio::select! {
            biased;
            _ = track.when_cut() => return,
            outside = way.socket() => outside,
        };
        let outside = match outside {
            Ok(outside) => outside,
            Err(error) => return self.tell_failed(&error),
        };
        self.tell(&self.ruling, |told| told);
        let reason = tokio::select! {
            biased;
            reason = track.when_cut() => reason,
            () = track.when_idle(self.state.limits.udp_idle) => DecisionReason::Finished,
            () = self.exchange(&outside, &mut arriving) => DecisionReason::Finished,
        };
        let (out, into) = track.bytes();
        let closed = Ruling { verdict: Verdict::Closed, ..Ruling::allowed(reason, None) };
        self.tell(&closed, |told| Decision { bytes_out: Some(out), bytes_in: Some(into), ..told });
    }

    async fn exchange(&self, outside: &UdpSocket, arriving: &mut mpsc::Receiver<Vec<u8>>) {
        let (socket, program, address) = &self.inside;
        let track = self.flow.track();
        let counters = self.state.recorder.counters();
        let mut buffer = vec![0; DATAGRAM];
        loop {
            tokio::select! {
                datagram = arriving.recv() => {
                    let Some(datagram) = datagram else { return };
                    let bytes = u64::try_from(datagram.len()).unwrap_or(u64::MAX);
                    let out = counters.bytes_out.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
                    if self.state.limits.bytes_out.is_some_and(|most| out > most) {
                        track.cut(DecisionReason::UsedUp);
                        return;
                    }
                    track.count_out(bytes);
                    // What can't be sent is lost, as datagrams are.
                    drop(timeout(SEND, outside.send(&datagram)).await);
                }
                received = outside.recv(&mut buffer) => match received {
                    Ok(length) => {
                        let bytes = u64::try_from(length).unwrap_or(u64::MAX);
                        counters.bytes_in.fetch_add(bytes, Ordering::Relaxed);
                        track.count_in(bytes);
                        drop(packet::send(socket, &buffer[..length], *address, *program));
                    }
                    // Nobody listens there now; somebody may later.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                    Err(_) => return,
                },
            }
        }
    }

    fn tell_failed(&self, error: &DialError) {
        self.tell(&error.ruling(&self.ruling), |told| Decision {
            address: error.address(),
            detail: Some(error.to_string()),
            ..told
        });
    }

    fn tell(&self, ruling: &Ruling, more: impl FnOnce(Decision) -> Decision) {
        let told = ruled(DecisionKind::Udp, ruling, &self.destination, self.port);
        let address = told.address.or(self.flow.track().last_address());
        self.state.recorder.tell(more(Decision { address, ..told }));
    }
}
