//! Descriptors that leave a sandbox through a folder of the host's, and what can be written by them into copies.

use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use sandbar_core::{
    Command, CreateOptions, ForkOptions, GuestPath, HostMount, MountAccess, Sandbox, SandboxExt,
    SandboxProvider, State,
};

use crate::support::{Bed, agent_pid, eventually, kill, shim_pid};

/// Far more than it takes.
const PROMPT: Duration = Duration::from_secs(20);
/// Hands out a descriptor of its file, and waits until somebody has it.
const GIVER: &str = r"
import array, os, socket
f = open(os.path.expanduser('~/file'), 'r+b')
s = socket.socket(socket.AF_UNIX); s.connect('/mnt/s')
s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [f.fileno()]))])
s.recv(1)
";

/// The file that somebody hands out.
fn take(listener: &UnixListener) -> File {
    let (stream, _) = listener.accept().expect("somebody");
    let (mut byte, mut space) = ([0], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))]);
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .expect("a message");
    let mut given = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut given) => given.next(),
        _ => None,
    });
    given.next().expect("a descriptor").into()
}

async fn text(sandbox: &dyn Sandbox, script: &str) -> String {
    let output = sandbox.commands().run(&Command::shell(script)).await.expect("it ran");
    assert!(output.status.is_success(), "{output:?}");
    output.stdout_lossy().trim().to_owned()
}

#[tokio::test]
async fn what_is_handed_out_writes_nothing_into_a_copy() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        println!("skipped: this machine has no python3");
        return;
    }
    for stops in [false, true] {
        let Some(bed) = Bed::new() else { return };
        let folder = bed.scratch().join("shared");
        std::fs::create_dir(&folder).expect("a folder");
        let target = GuestPath::new("/mnt").expect("a path");
        let mount = HostMount { source: folder.clone(), target, access: MountAccess::ReadOnly };
        let parent =
            bed.provider().create(CreateOptions::new().with_host_mount(mount)).await.expect("a sandbox");
        // After its creation: one that is there before keeps it from being mounted.
        let listener = UnixListener::bind(folder.join("s")).expect("a socket");
        set_socket_timeout(&listener, Timeout::Recv, Some(PROMPT)).expect("a bound");
        std::fs::set_permissions(folder.join("s"), std::fs::Permissions::from_mode(0o777)).expect("open");
        let taking = tokio::task::spawn_blocking(move || take(&listener));
        text(&*parent, "echo good > ~/file").await;
        let give = format!("cat > /tmp/give.py <<'END'\n{GIVER}\nEND\npython3 /tmp/give.py");
        text(&*parent, &give).await;
        let file = taking.await.expect("a file");
        // A folder with a socket is not mounted into a copy.
        std::fs::remove_file(folder.join("s")).expect("removed");
        if stops {
            kill(shim_pid(&bed, parent.id()).expect("a shim"));
            kill(agent_pid(&bed, parent.id()));
            let stopped = async || parent.record().await.expect("a record").state == State::Stopped;
            eventually("it is found stopped", stopped).await;
        }
        let forking = parent.require_forking().expect("forking");
        let (copy, outcome) = forking.fork(ForkOptions::default()).await.expect("a copy");
        assert_ne!(outcome.mechanism, "layer");
        assert_eq!(text(&*copy, "cat ~/file").await, "good");
        file.write_all_at(b"EVIL", 0).expect("written");
        let (second, _) = forking.fork(ForkOptions::default()).await.expect("a copy");
        assert_eq!(text(&*copy, "cat ~/file").await, "good", "stopped: {stops}");
        assert_eq!(text(&*second, "cat ~/file").await, "EVIL", "it did write");
        for sandbox in [&copy, &second, &parent] {
            sandbox.destroy().await.expect("destroyed");
        }
        bed.assert_empty("after what was handed out").await;
    }
}
