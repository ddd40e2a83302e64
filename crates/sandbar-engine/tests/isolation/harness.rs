//! A sandbox with the probe as its agent, in the mode this process can do.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sandbar_engine::mount_source::Allowed;
use sandbar_engine::rootfs::{HostRoots, Skeleton, build_skeleton};
use sandbar_engine::{
    Access, Cgroup, Durability, Host, HostPrograms, IdMode, LAYERS_FOLDER, Launched, Limits, Mount,
    MountOwners, Network, Root, Spec, launch, plan, remove_tree, sealed_memfd,
};

/// Nothing in these tests takes anywhere near as long.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// What the tests change of a sandbox.
#[derive(Debug, Default, Clone)]
pub(crate) struct Options {
    pub(crate) limits: Limits,
    pub(crate) mounts: Vec<(PathBuf, PathBuf, Access)>,
    /// Links (place, text) that an earlier run of the sandbox left in its writable layer.
    pub(crate) left: Vec<(&'static str, PathBuf)>,
    pub(crate) durability: Durability,
    pub(crate) network: Network,
}

#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) host: Host,
    pub(crate) folder: tempfile::TempDir,
    roots: HostRoots,
    skeleton: Skeleton,
    pub(crate) probe: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) launched: Launched,
    /// From plan to agent.
    pub(crate) launch_time: Duration,
    pub(crate) log: File,
    pub(crate) name: String,
    pub(crate) ids: IdMode,
    pub(crate) cgroup: Option<Cgroup>,
    _listeners: (UnixListener, OwnedFd),
    ended: bool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sandbar-engine-").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let roots = HostRoots::observe().unwrap();
        let at = folder.path().join("skeleton");
        std::fs::create_dir(&at).unwrap();
        let dir = File::open(&at).unwrap();
        build_skeleton(dir.as_fd(), &roots).unwrap();
        let skeleton = Skeleton::open(dir.as_fd()).unwrap();
        Self { host: Host::observe(), folder, roots, skeleton, probe: probe() }
    }

    /// As root a range, never shared between two sandboxes of these tests.
    pub(crate) fn ids(&self) -> IdMode {
        if self.host.needs_range() {
            let slot = NUMBER.fetch_add(1, Ordering::Relaxed) % 1000;
            return IdMode::range(0x2000_0000 + (slot << 16));
        }
        self.host.user_id_mode()
    }

    pub(crate) fn start(&self, task: &str, options: &Options) -> Running {
        self.try_start(task, options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_start(&self, task: &str, options: &Options) -> Result<Running, sandbar_engine::Error> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}-{number}", std::process::id());
        let own = self.folder.path().join(&name);
        std::fs::create_dir(&own).unwrap();
        let ids = self.ids();
        plant(&own, &ids, &options.left);
        self.try_start_in(name, ids, task, options)
    }

    /// Kills what runs, and starts it anew on what it left in its writable layers.
    pub(crate) fn start_again(&self, mut running: Running, task: &str, options: &Options) -> Running {
        running.kill();
        if let Some(group) = &running.cgroup {
            group.remove(BOUND).unwrap();
        }
        for socket in ["a.sock", "c.sock"] {
            std::fs::remove_file(self.folder.path().join(&running.name).join(socket)).unwrap();
        }
        self.try_start_in(running.name.clone(), running.ids.clone(), task, options)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_start_in(
        &self,
        name: String,
        ids: IdMode,
        task: &str,
        options: &Options,
    ) -> Result<Running, sandbar_engine::Error> {
        let own = self.folder.path().join(&name);
        let writable = File::open(&own).unwrap();
        let agent = UnixListener::bind(own.join("a.sock")).unwrap();
        let ctl =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&ctl, &SocketAddrUnix::new(own.join("c.sock")).unwrap()).unwrap();
        listen(&ctl, 4).unwrap();
        let (log, log_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let config = sealed_memfd(task.as_bytes()).unwrap();
        let nowhere = Path::new("/nonexistent");
        let sources: Vec<OwnedFd> = options
            .mounts
            .iter()
            .map(|(source, _, _)| sandbar_engine::mount_source::open(source, nowhere, &Allowed::default()))
            .collect::<Result<_, _>>()?;
        let cgroup = Cgroup::create(&self.host.cgroups, &name, &options.limits)?;
        let mounts = sources
            .iter()
            .zip(&options.mounts)
            .map(|(source, (_, target, access))| Mount {
                source: source.as_fd(),
                target,
                access: *access,
                owners: MountOwners::User,
            })
            .collect();
        let spec = Spec {
            id: &name,
            hostname: "probe-box",
            ids: ids.clone(),
            root: Root {
                lowers: vec![self.skeleton.root.as_fd().into()],
                host: Some(HostPrograms {
                    usr: Vec::new(),
                    additions: self.skeleton.usr.as_fd(),
                    roots: &self.roots,
                }),
            },
            writable: writable.as_fd(),
            durability: options.durability,
            mounts,
            agent: &self.probe,
            config: config.as_fd(),
            agent_listener: agent.as_fd(),
            ctl_listener: ctl.as_fd(),
            log: log_end.as_fd(),
            cgroup: cgroup.as_ref(),
            limits: options.limits.clone(),
            network: options.network,
        };
        let started = Instant::now();
        let made = plan(&spec, &self.host).and_then(launch);
        let launched = match made {
            Ok(launched) => launched,
            Err(error) => {
                if let Some(group) = &cgroup {
                    group.remove(BOUND).unwrap();
                }
                return Err(error);
            }
        };
        Ok(Running {
            launched,
            launch_time: started.elapsed(),
            log: File::from(log),
            name,
            ids,
            cgroup,
            _listeners: (agent, ctl),
            ended: false,
        })
    }

    /// Starts, waits for the probe's report, and ends it.
    pub(crate) fn report(&self, task: &str, options: &Options) -> serde_json::Value {
        let mut running = self.start(task, options);
        let text = running.read_to_end();
        self.end(running);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// Kills what runs, and removes group and files.
    pub(crate) fn end(&self, mut running: Running) {
        running.kill();
        if let Some(group) = &running.cgroup {
            group.remove(BOUND).unwrap();
        }
        let folder = File::open(self.folder.path()).unwrap();
        remove_tree(folder.as_fd(), OsStr::new(&running.name), &running.ids).unwrap();
    }
}

impl Running {
    /// Everything the probe says until it ends.
    pub(crate) fn read_to_end(&mut self) -> String {
        let mut text = String::new();
        let end = Instant::now() + BOUND;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap();
            let ready = poll(&mut [PollFd::new(&self.log, PollFlags::IN)], Some(&left)).unwrap();
            assert!(ready > 0, "the probe said nothing more in time: {text}");
            let mut bytes = [0; 16_384];
            let n = self.log.read(&mut bytes).unwrap();
            if n == 0 {
                return text;
            }
            text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        }
    }

    /// The first line the probe says.
    pub(crate) fn read_line(&mut self) -> String {
        let mut text = Vec::new();
        let end = Instant::now() + BOUND;
        while text.last() != Some(&b'\n') {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap();
            let ready = poll(&mut [PollFd::new(&self.log, PollFlags::IN)], Some(&left)).unwrap();
            assert!(ready > 0, "the probe said nothing in time");
            let mut byte = [0; 1];
            if self.log.read(&mut byte).unwrap() == 0 {
                break;
            }
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn kill(&mut self) {
        if !self.ended {
            let _ = pidfd_send_signal(&self.launched.pidfd, Signal::KILL);
            waitid(WaitId::PidFd(self.launched.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
            self.ended = true;
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.launched.pid
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn plant(own: &Path, ids: &IdMode, left: &[(&str, PathBuf)]) {
    if left.is_empty() {
        return;
    }
    let upper = own.join(LAYERS_FOLDER).join("upper");
    for (place, text) in left {
        let place = upper.join(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(text, place).unwrap();
    }
    if let IdMode::Range { base, .. } = ids {
        for folder in [own.join(LAYERS_FOLDER), upper.clone(), upper.join("etc"), upper.join("home")] {
            if folder.is_dir() {
                std::os::unix::fs::chown(folder, Some(*base), Some(*base)).unwrap();
            }
        }
    }
}

/// Cargo builds examples along with the tests, beside them; a re-executed test finds it in its own folder.
pub(crate) fn probe() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let found =
        [folder.join("probe"), folder.join("../examples/probe")].into_iter().find(|path| path.is_file());
    std::fs::canonicalize(found.expect("the example `probe` is built with the tests")).unwrap()
}
