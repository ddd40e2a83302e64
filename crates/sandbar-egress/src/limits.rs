use std::time::Duration;

/// What one sandbox may use of its gateway. The defaults are the constants of this file; each row of the scorecard that is *bounded* has its number here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// TCP connections open at once.
    pub connections: usize,
    /// New TCP connections and UDP flows per second, in the long run.
    pub connections_per_second: u32,
    /// New TCP connections and UDP flows at once, after a quiet time.
    pub connection_burst: u32,
    /// UDP flows open at once.
    pub udp_flows: usize,
    /// How long a UDP flow lives without a datagram.
    pub udp_idle: Duration,
    /// How long a TCP connection lives without a byte either way.
    pub tcp_idle: Duration,
    /// How long the start of a connection (`ClientHello`, request head) may take.
    pub handshake: Duration,
    /// Longest `ClientHello` in bytes, with its record headers.
    pub hello_bytes: usize,
    /// How long it may take to resolve a name and to connect, together.
    pub dial: Duration,
    /// Questions to the resolver per second, in the long run.
    pub questions_per_second: u32,
    /// Questions to the resolver at once, after a quiet time.
    pub question_burst: u32,
    /// Connections to the resolver at once.
    pub question_connections: usize,
    /// Names that get an address, over the sandbox's life.
    pub names: usize,
    /// New names per minute that no rule spells out, in the long run.
    pub new_names_per_minute: u32,
    /// New names at once that no rule spells out, after a quiet time.
    pub new_name_burst: u32,
    /// Bytes of labels below `*.` of rules, over the sandbox's life: what can leave as names asked for.
    pub wildcard_label_bytes: u64,
    /// Bytes that may leave the sandbox in connections and flows over the gateway's life; without a number, any.
    pub bytes_out: Option<u64>,
}

/// Connections at once: a browser opens some hundred; each takes two descriptors of the gateway.
const CONNECTIONS: usize = 1024;
/// Connections per second: more than a crawler makes, far less than what a scan of a network needs.
const CONNECTIONS_PER_SECOND: u32 = 200;
/// A package manager's start.
const CONNECTION_BURST: u32 = 500;
/// UDP flows at once: one per socket and destination.
const UDP_FLOWS: usize = 256;
/// As home routers keep a UDP mapping (RFC 4787 asks for two minutes at least where there is room).
const UDP_IDLE: Duration = Duration::from_secs(60);
/// RFC 5382 asks middleboxes for two hours and four minutes at least.
const TCP_IDLE: Duration = Duration::from_secs(7440);
/// A slow client on a loaded machine sends its first bytes within a second.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// One TLS record's worth: the largest hellos, with post-quantum keys, have about 2 KiB.
const HELLO_BYTES: usize = 16 << 10;
/// What programs wait at most for a connection, roughly.
const DIAL: Duration = Duration::from_secs(10);
/// Questions per second.
const QUESTIONS_PER_SECOND: u32 = 200;
/// Questions at once.
const QUESTION_BURST: u32 = 400;
/// Programs ask again over TCP only where an answer was cut, and none of the resolver's is.
const QUESTION_CONNECTIONS: usize = 64;
/// Names over a life: far below the 130,816 addresses of the pool, some megabytes of the gateway's memory.
const NAMES: usize = 32_768;
/// New names per minute below wildcards.
const NEW_NAMES_PER_MINUTE: u32 = 300;
/// New names at once: a page of a large site names about a hundred hosts.
const NEW_NAME_BURST: u32 = 300;
/// Label bytes: some thousand ordinary names; 64 KiB of data at the very most.
const WILDCARD_LABEL_BYTES: u64 = 64 << 10;

/// Bytes out over a gateway's life: far more than a day of builds and pushes sends, and an end to a program that sends as fast as it can.
const BYTES_OUT: u64 = 100 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS,
            connections_per_second: CONNECTIONS_PER_SECOND,
            connection_burst: CONNECTION_BURST,
            udp_flows: UDP_FLOWS,
            udp_idle: UDP_IDLE,
            tcp_idle: TCP_IDLE,
            handshake: HANDSHAKE,
            hello_bytes: HELLO_BYTES,
            dial: DIAL,
            questions_per_second: QUESTIONS_PER_SECOND,
            question_burst: QUESTION_BURST,
            question_connections: QUESTION_CONNECTIONS,
            names: NAMES,
            new_names_per_minute: NEW_NAMES_PER_MINUTE,
            new_name_burst: NEW_NAME_BURST,
            wildcard_label_bytes: WILDCARD_LABEL_BYTES,
            bytes_out: Some(BYTES_OUT),
        }
    }
}

/// Descriptors that a TCP connection takes at most: itself, and either the one outside or both questions for its name, each of which may have its
/// datagram socket and its connection at once.
const PER_CONNECTION: usize = 5;

/// The same of a UDP flow: its socket outside, or the questions for its name.
const PER_UDP_FLOW: usize = 4;

impl Limits {
    /// The defaults, or less where they could take more than `descriptors`: a sandbox that opens all that it may leaves the rest of the process
    /// what that needs.
    pub fn within(descriptors: usize) -> Self {
        let limits = Self::default();
        let (udp_flows, question_connections) =
            (limits.udp_flows.min(descriptors / 16), limits.question_connections.min(descriptors / 16));
        let rest = descriptors.saturating_sub(udp_flows * PER_UDP_FLOW + question_connections);
        let connections = limits.connections.min(rest / PER_CONNECTION).max(1);
        Self {
            connections,
            udp_flows: udp_flows.max(1),
            question_connections: question_connections.max(1),
            ..limits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_leave_has_an_end_by_default() {
        assert_eq!(Limits::default().bytes_out, Some(107_374_182_400));
    }

    #[test]
    fn what_is_open_at_once_fits_in_what_there_is() {
        assert_eq!(Limits::within(usize::MAX), Limits::default());
        assert_eq!(Limits::within(1 << 13), Limits::default());
        for descriptors in [32, 100, 256, 1000, 2048, 4096] {
            let Limits { connections, udp_flows, question_connections, .. } = Limits::within(descriptors);
            let most = connections * PER_CONNECTION + udp_flows * PER_UDP_FLOW + question_connections;
            assert!(most <= descriptors, "{descriptors}: {connections}, {udp_flows}, {question_connections}");
            assert!(
                connections * PER_CONNECTION * 2 >= descriptors.min(1024 * PER_CONNECTION),
                "{descriptors}: {connections}"
            );
        }
        assert_eq!(Limits::within(0).connections, 1);
    }
}
