//! The agent as a process of its own, started as the engine starts it.

use std::ffi::CString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use sandbar_agent::AgentConfig;
use sandbar_agent::config::IdMode;
use sandbar_engine::process::{Child, Event, Identity, Spawn};

use super::{Agent, is_root, prepare, user_ids};

pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) pid: i32,
    pub(crate) agent: Agent,
}

/// How it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// With the ids of the tests.
    Tests,
    /// With the ids of `user`, and no others.
    User,
    /// As PID 1 of a namespace, by `unshare`, whose process id it has for us.
    Init,
}

/// The example program, which `cargo test` builds beside the tests.
pub(crate) fn path() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/agent");
    assert!(program.exists(), "build it with `cargo build -p sandbar-agent --examples`");
    program
}

impl Started {
    pub(crate) fn new(how: As, change: impl FnOnce(&mut AgentConfig)) -> Self {
        let mut text = Vec::new();
        let (folder, config, listeners) = prepare(|config| {
            if how == As::User {
                config.ids = IdMode::Single;
            }
            change(config);
        });
        text.extend(serde_json::to_vec(&config).unwrap());
        Self::with_text(how, &text, folder, listeners)
    }

    pub(crate) fn with_text(
        how: As,
        config: &[u8],
        folder: tempfile::TempDir,
        listeners: sandbar_agent::Listeners,
    ) -> Self {
        let (read, write) = std::io::pipe().unwrap();
        { write }.write_all(config).unwrap();
        let (uid, gid) = user_ids();
        let descriptors: Vec<OwnedFd> = vec![read.into(), listeners.agent, listeners.control.unwrap()];
        let program = CString::new(path().to_str().unwrap()).unwrap();
        let mut spawn = Spawn {
            programs: vec![program.clone()],
            argv: vec![c"sandbar-agent".into()],
            more_descriptors: descriptors,
            capabilities: sandbar_engine::process::Capabilities::Inherit,
            ..Spawn::default()
        };
        if how == As::User && is_root() {
            spawn.identity = Identity::Set { uid, gid, groups: vec![gid] };
            spawn.capabilities = sandbar_engine::process::Capabilities::None;
        }
        if how == As::Init {
            let mut args = vec!["unshare".to_owned(), "--pid".into(), "--fork".into(), "--kill-child".into()];
            args.push("--mount-proc".into());
            if !is_root() {
                args.extend([format!("--map-user={uid}"), format!("--map-group={gid}"), "--mount".into()]);
            }
            spawn.programs = ["/usr/bin/unshare", "/bin/unshare"].map(|p| CString::new(p).unwrap()).to_vec();
            spawn.argv = args.into_iter().map(|arg| CString::new(arg).unwrap()).collect();
            spawn.argv.push(program);
        }
        let child = spawn.start().unwrap();
        let pid = match child.wait_event(Duration::from_secs(10)).unwrap() {
            Event::Started(pid) => pid,
            other => panic!("{other:?}"),
        };
        Self { child, pid, agent: Agent::elsewhere(folder) }
    }

    /// From now on neither a process nor a thread can be made.
    pub(crate) fn forbid_processes(&self) {
        // By its own user, as not every root may.
        let (uid, gid) = user_ids();
        let mut prlimit = std::process::Command::new("prlimit");
        prlimit.args([&format!("--pid={}", self.pid), "--nproc=1:1"]);
        if is_root() {
            prlimit.gid(gid).uid(uid);
        }
        assert!(prlimit.status().unwrap().success());
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.tree.signal(9, sandbar_engine::process::Reach::Everything);
        self.child.tree.reap();
    }
}
