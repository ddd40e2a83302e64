//! The agent in a sandbox that has the inside of a network.

mod support;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, listen, recvmsg, send, socket_with, sockopt,
};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sandbar_agent::AgentConfig;
use sandbar_agent::config::{IdMode as Ids, Sudo};
use sandbar_engine::network::{NetworkSockets, SOCKETS};
use sandbar_engine::rootfs::{HostRoots, Skeleton, build_skeleton};
use sandbar_engine::{
    Durability, Host, HostPrograms, IdMode, Launched, Limits, Network, Root, Spec, launch, plan, remove_tree,
};
use serde_json::{Value, json};
use support::{Agent, program, run};

/// A sandbox with the agent, without a group.
struct Sandbox {
    launched: Launched,
    agent: Agent,
    ids: IdMode,
}

impl Sandbox {
    fn start(network: Network) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let host = Host::observe();
        let roots = HostRoots::observe().unwrap();
        for name in ["skeleton", "own"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let skeleton = File::open(at("skeleton")).unwrap();
        build_skeleton(skeleton.as_fd(), &roots).unwrap();
        let skeleton = Skeleton::open(skeleton.as_fd()).unwrap();
        let slot = NUMBER.fetch_add(1, Ordering::Relaxed);
        let ids =
            if host.needs_range() { IdMode::range(0x3000_0000 + (slot << 16)) } else { host.user_id_mode() };
        let mut config = AgentConfig::new("i1", "host");
        if ids == IdMode::Single {
            config.ids = Ids::Single;
            config.sudo = Sudo::Denied { reason: "single id".into() };
        }
        let (read, write) = std::io::pipe().unwrap();
        { write }.write_all(&serde_json::to_vec(&config).unwrap()).unwrap();
        let (_, log) = std::io::pipe().unwrap();
        let agent = UnixListener::bind(at("agent.sock")).unwrap();
        let ctl =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&ctl, &SocketAddrUnix::new(at("ctl.sock")).unwrap()).unwrap();
        listen(&ctl, 4).unwrap();
        let writable = File::open(at("own")).unwrap();
        let spec = Spec {
            id: "network",
            hostname: "box",
            ids: ids.clone(),
            root: Root {
                lowers: vec![skeleton.root.as_fd().into()],
                host: Some(HostPrograms { usr: Vec::new(), additions: skeleton.usr.as_fd(), roots: &roots }),
            },
            writable: writable.as_fd(),
            durability: Durability::Volatile,
            mounts: Vec::new(),
            agent: &program::path().canonicalize().unwrap(),
            config: read.as_fd(),
            agent_listener: agent.as_fd(),
            ctl_listener: ctl.as_fd(),
            log: log.as_fd(),
            cgroup: None,
            limits: Limits::default(),
            network,
        };
        let launched = launch(plan(&spec, &host).unwrap()).unwrap();
        Self { launched, agent: Agent::elsewhere(folder), ids }
    }

    fn ask_for_the_network(&self) -> (Value, Vec<OwnedFd>) {
        let control = self.agent.control();
        send(&control, br#"{"v":1,"op":"network"}"#, SendFlags::NOSIGNAL).unwrap();
        let mut packet = vec![0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [std::io::IoSliceMut::new(&mut packet)];
        let count = recvmsg(&control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap().bytes;
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => rights.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let descriptors = descriptors.collect();
        (serde_json::from_slice(&packet[..count]).unwrap(), descriptors)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.launched.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.launched.pidfd.as_fd()), WaitIdOptions::EXITED);
        let folder = File::open(self.agent.folder.path()).unwrap();
        let _ = remove_tree(folder.as_fd(), OsStr::new("own"), &self.ids);
    }
}

#[test]
fn whoever_comes_later_gets_the_same_sockets() {
    let mut sandbox = Sandbox::start(Network::Gateway);
    let first = sandbox.launched.network.take().unwrap();
    let (answer, descriptors) = sandbox.ask_for_the_network();
    assert_eq!(answer, json!({"ok": true}));
    let second = NetworkSockets::checked(descriptors).unwrap();
    let cookies = |sockets: &NetworkSockets| -> Vec<u64> {
        sockets.in_order().into_iter().map(|socket| sockopt::socket_cookie(socket).unwrap()).collect()
    };
    assert_eq!(cookies(&first), cookies(&second));
    assert_eq!(cookies(&first).len(), SOCKETS);
}

#[test]
fn no_command_has_them() {
    let sandbox = Sandbox::start(Network::Gateway);
    let script = "ls -l /proc/self/fd | grep -c socket; ls -l /proc/$PPID/fd 2>/dev/null | grep -c socket";
    assert_eq!(run(sandbox.agent.run(script)).text(), "0\n0\n");
}

#[test]
fn without_a_gateway_there_are_none() {
    let sandbox = Sandbox::start(Network::Loopback);
    let (answer, descriptors) = sandbox.ask_for_the_network();
    assert_eq!((answer, descriptors.len()), (json!({"ok": false, "error": "none"}), 0));
}
