use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::env;
use crate::wire::{
    self, Address, Arrival, Ask, Connection, LINE_LIMIT, LinkState, Query, Reach, Reply, Request, SOCKET,
};
use crate::zone::Zone;

/// How long the rig may take for an answer: a cut or joined link is the longest.
const ANSWER: Duration = Duration::from_secs(30);
/// How long to wait for other tests of the same rig to end, for one that must be alone, and for that one.
const TURN: Duration = Duration::from_secs(300);
/// Between two looks while waiting.
const LOOK: Duration = Duration::from_millis(5);

/// The rig that this process is in. Every call panics when the rig does not answer: this is for tests.
#[derive(Debug)]
pub struct Rig {
    folder: PathBuf,
    line: Mutex<BufReader<UnixStream>>,
    /// Tests that share the rig hold this for reading, one that must be alone for writing.
    _turn: File,
}

/// A [`Rig`] that no other test uses at the same time: it may be cut off.
#[derive(Debug)]
pub struct RigAlone(Rig);

impl Rig {
    /// Connects to the rig around this process (`SANDBAR_RIG`), together with other tests.
    #[track_caller]
    pub fn connect() -> Self {
        Self::with(FlockOperation::NonBlockingLockShared)
    }

    /// Connects once no other test holds the rig, and keeps others out.
    #[track_caller]
    pub fn connect_alone() -> RigAlone {
        RigAlone(Self::with(FlockOperation::NonBlockingLockExclusive))
    }

    #[track_caller]
    fn with(turn: FlockOperation) -> Self {
        let folder =
            env::folder().unwrap_or_else(|| panic!("no rig around this process; use `sandbar_rig::inside`"));
        let lock =
            File::open(folder.join("resolv.conf")).unwrap_or_else(|e| panic!("no lock in the rig: {e}"));
        let end = Instant::now() + TURN;
        while flock(&lock, turn).is_err() {
            assert!(Instant::now() < end, "the rig was not free within {TURN:?}");
            std::thread::sleep(LOOK);
        }
        let stream =
            UnixStream::connect(folder.join(SOCKET)).unwrap_or_else(|e| panic!("no rig answers: {e}"));
        stream.set_read_timeout(Some(ANSWER)).expect("a socket takes a time-out");
        Self { folder, line: Mutex::new(BufReader::new(stream)), _turn: lock }
    }

    /// A name that no other test has: `prefix-….test`.
    pub fn unique(&self, prefix: &str) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}-{}-{count}-{:06x}.test", std::process::id(), fastrand::u32(..0x100_0000))
    }

    /// A public address that no other test has.
    #[track_caller]
    pub fn address(&self) -> Address {
        match self.ask(&Ask::Address) {
            Reply::Address(address) => address,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// A name of its own at an address of its own, published.
    #[track_caller]
    pub fn host(&self, prefix: &str) -> (String, Address) {
        let (name, address) = (self.unique(prefix), self.address());
        self.zone(&name).a(address.v4).aaaa(address.v6).publish();
        (name, address)
    }

    /// What the resolver is to answer for `name`; unknown names do not exist. `*.name` stands for all names below it that have no answer
    /// of their own.
    pub fn zone(&self, name: &str) -> Zone<'_> {
        Zone::new(self, name)
    }

    /// Serves the files below `folder` to requests for `host`, in place of the rig's own pages. A folder answers with its
    /// `index.html` or `index.json`.
    #[track_caller]
    pub fn serve_folder(&self, host: &str, folder: &Path) {
        self.done(&Ask::Folder { host: host.to_owned(), folder: folder.to_owned() });
    }

    /// Listens on another TCP port, at every address.
    #[track_caller]
    pub fn listen(&self, port: u16) {
        self.done(&Ask::Listen { port });
    }

    /// How packets to an address fare from now on; all of them are recorded in any case.
    #[track_caller]
    pub fn set_reach(&self, address: impl Into<IpAddr>, reach: Reach) {
        self.done(&Ask::Reach { address: address.into(), reach });
    }

    /// The certificate of the authority that signs what the rig's TLS shows, as a file that everyone may read. Within the rig it is in the system's list of trusted
    /// ones, too (`/etc/ssl/certs/ca-certificates.crt`), where there is one.
    pub fn ca_pem_path(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A point in time; the `…_since` calls answer what was recorded after it.
    #[track_caller]
    pub fn mark(&self) -> u64 {
        match self.ask(&Ask::Mark) {
            Reply::Mark(mark) => mark,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// Every query so far for `name` and the names below it, at any address and over any transport.
    #[track_caller]
    pub fn queries(&self, name: &str) -> Vec<Query> {
        self.queries_since(0, Some(name))
    }

    /// Queries after `mark`; for all names with `None`.
    #[track_caller]
    pub fn queries_since(&self, mark: u64, name: Option<&str>) -> Vec<Query> {
        match self.ask(&Ask::Queries { since: mark, name: name.map(str::to_owned) }) {
            Reply::Queries(queries) => queries,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// Everything so far that came for an address. A packet that the host sent before this call is in the answer.
    #[track_caller]
    pub fn arrivals(&self, to: impl Into<IpAddr>) -> Vec<Arrival> {
        self.arrivals_since(0, Some(to.into()))
    }

    /// What came after `mark`; for all addresses with `None`.
    #[track_caller]
    pub fn arrivals_since(&self, mark: u64, to: Option<IpAddr>) -> Vec<Arrival> {
        match self.ask(&Ask::Arrivals { since: mark, to }) {
            Reply::Arrivals(arrivals) => arrivals,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// TCP connections so far to an address, with their bytes so far.
    #[track_caller]
    pub fn connections(&self, to: impl Into<IpAddr>) -> Vec<Connection> {
        match self.ask(&Ask::Connections { since: 0, to: Some(to.into()) }) {
            Reply::Connections(connections) => connections,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// HTTP requests so far that named `host`.
    #[track_caller]
    pub fn requests(&self, host: &str) -> Vec<Request> {
        match self.ask(&Ask::Requests { since: 0, host: Some(host.to_owned()) }) {
            Reply::Requests(requests) => requests,
            other => panic!("the rig answered {other:?}"),
        }
    }

    /// Waits until `look` finds something, for at most `limit`.
    #[track_caller]
    pub fn wait<T>(&self, limit: Duration, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < end, "the rig saw no {what} within {limit:?}");
            std::thread::sleep(LOOK);
        }
    }

    #[track_caller]
    pub(crate) fn done(&self, ask: &Ask) {
        match self.ask(ask) {
            Reply::Done => {}
            other => panic!("the rig answered {other:?}"),
        }
    }

    #[track_caller]
    fn ask(&self, ask: &Ask) -> wire::Reply {
        let mut line = serde_json::to_string(ask).expect("a question is JSON");
        line.push('\n');
        // A test that panicked while it asked left half an answer behind: its rig is of no use to others.
        let mut stream = self.line.lock().expect("no test panicked while it asked");
        stream.get_mut().write_all(line.as_bytes()).unwrap_or_else(|e| panic!("the rig is gone: {e}"));
        let mut answer = String::new();
        let read = (&mut *stream).take(LINE_LIMIT).read_line(&mut answer);
        read.unwrap_or_else(|e| panic!("the rig did not answer {ask:?}: {e}"));
        match serde_json::from_str(&answer) {
            Ok(Reply::Refused(why)) => panic!("the rig refused {ask:?}: {why}"),
            Ok(reply) => reply,
            Err(e) => panic!("the rig's answer to {ask:?} is not understood: {e}"),
        }
    }
}

impl RigAlone {
    /// Cuts the host off: it has no route to anywhere until [`link_up`](Self::link_up) or the end of this value.
    #[track_caller]
    pub fn link_down(&self) {
        self.0.done(&Ask::Link { state: LinkState::Down });
    }

    /// Joins the host again.
    #[track_caller]
    pub fn link_up(&self) {
        self.0.done(&Ask::Link { state: LinkState::Up });
    }
}

impl Deref for RigAlone {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.0
    }
}

impl Drop for RigAlone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.link_up();
            return;
        }
        // The next test is to find a link also after this one failed; a second panic would end the process.
        let ask = serde_json::to_string(&Ask::Link { state: LinkState::Up }).unwrap_or_default() + "\n";
        if let Ok(mut stream) = UnixStream::connect(self.0.folder.join(SOCKET)) {
            let _ = stream.set_read_timeout(Some(ANSWER));
            let _ = stream.write_all(ask.as_bytes());
            let _ = BufReader::new(stream).read_line(&mut String::new());
        }
    }
}
