use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use sandbar_core::{DeadlineAction, RestartPolicy, Result, SandboxId, UserName};
use sandbar_egress::intercept::Authority;
use sandbar_engine::{Host, IdMode, SANDBOX_ROOT_CAPABILITIES};
use serde::Serialize;

use super::protocol::{CreateOrders, MainOrder};
use crate::doctor;
use crate::error::io_error;
use crate::home::{Folder, Home};

/// Socket of the guest protocol, in the sandbox' folder.
pub(crate) const AGENT_SOCKET: &str = "agent.sock";
/// Socket of the agent's control protocol, in the sandbox' folder.
pub(crate) const CTL_SOCKET: &str = "ctl.sock";
/// How much later than the shim the agent acts on the deadline, in milliseconds: the shim destroys in good order, the agent is there for when
/// the shim is not.
pub(crate) const BACKSTOP_MS: i64 = 2000;
/// Longest path in a socket's address, in bytes: the field has 108, with a zero at the end.
const MAX_ADDRESS: usize = 107;
/// Connections that wait to be accepted; a burst of parallel commands fits.
const BACKLOG: i32 = 256;
/// Who runs commands, unless the template says otherwise.
const DEFAULT_USER: &str = "user";
/// The form of the configuration that decision 0006 describes.
const CONFIG_VERSION: u32 = 1;

/// The agent's configuration (decision 0006).
#[derive(Serialize)]
struct AgentConfig<'a> {
    version: u32,
    sandbox_id: &'a str,
    template_id: &'a str,
    default_user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_workdir: Option<&'a str>,
    env: BTreeMap<&'a str, &'a str>,
    deadline_unix_ms: Option<i64>,
    ids: &'a str,
    sudo: Sudo,
    root_capabilities: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    authority: Option<Trusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    main: Option<Main<'a>>,
}

/// The certificate of the sandbox' own authority, which its programs are to trust.
#[derive(Serialize)]
struct Trusted {
    certificate: String,
    subject_hash: String,
}

/// The main command.
#[derive(Serialize)]
struct Main<'a> {
    program: &'a str,
    args: &'a [String],
    env: BTreeMap<&'a str, &'a str>,
    cwd: Option<&'a str>,
    user: Option<&'a str>,
    restart: RestartPolicy,
}

impl<'a> From<&'a MainOrder> for Main<'a> {
    fn from(order: &'a MainOrder) -> Self {
        let (program, args) = match order.argv.split_first() {
            Some((program, args)) => (program.as_str(), args),
            None => ("", &[][..]),
        };
        Self {
            program,
            args,
            env: order.env.iter().collect(),
            cwd: order.cwd.as_deref(),
            user: order.user.as_ref().map(UserName::as_str),
            restart: order.restart,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Sudo {
    Allowed,
    Denied { reason: String },
}

/// How long an agent may take to read its configuration: it does nothing else.
const READS: Duration = Duration::from_secs(10);

/// The configuration. It holds the environment, which nobody but the agent shall read.
pub(super) fn config(
    id: &SandboxId,
    orders: &CreateOrders,
    deadline: Option<Timestamp>,
    ids: &IdMode,
    host: &Host,
    authority: Option<&Authority>,
) -> Result<Vec<u8>> {
    let defaults = &orders.boot.defaults;
    let config = AgentConfig {
        version: CONFIG_VERSION,
        sandbox_id: id.as_str(),
        template_id: orders.boot.template.as_str(),
        // With a single id there is no other user.
        default_user: defaults
            .user
            .as_ref()
            .filter(|_| ids.has_root())
            .map_or(DEFAULT_USER, UserName::as_str),
        default_workdir: defaults.workdir.as_deref(),
        env: defaults
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .chain(orders.env.iter())
            .collect(),
        deadline_unix_ms: deadline
            .filter(|_| orders.on_deadline == DeadlineAction::Destroy)
            .map(|deadline| deadline.as_millisecond().saturating_add(BACKSTOP_MS)),
        ids: if ids.has_root() { "mapped" } else { "single" },
        sudo: if ids.has_root() {
            Sudo::Allowed
        } else {
            let why = match host.user_id_mode() {
                IdMode::Single => doctor::single_id_fault(host).says,
                _ => "it has a writable mount",
            };
            Sudo::Denied { reason: format!("this sandbox has a single user id: {why}") }
        },
        authority: authority.map(|authority| Trusted {
            certificate: authority.certificate_pem(),
            subject_hash: authority.subject_hash(),
        }),
        main: orders.main.as_ref().map(Main::from),
        root_capabilities: SANDBOX_ROOT_CAPABILITIES.iter().map(|capability| capability.name).collect(),
    };
    serde_json::to_vec(&config).map_err(|cause| io_error("create", "agent configuration", cause))
}

/// A configuration, and the pipe to the agent that waits for it.
pub(super) struct Configuration {
    pipe: OwnedFd,
    text: Vec<u8>,
}

impl Configuration {
    pub(super) fn new(pipe: OwnedFd, text: Vec<u8>) -> Self {
        Self { pipe, text }
    }

    /// Writes it. That it is complete shows by the end of the pipe, so this takes it.
    pub(super) fn tell(self) -> Result<()> {
        let Self { pipe, text } = self;
        write(pipe, &text)
    }
}

impl std::fmt::Debug for Configuration {
    /// Without the environment.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configuration").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

fn write(pipe: OwnedFd, text: &[u8]) -> Result<()> {
    let broken = |cause: std::io::Error| io_error("create", "the agent's configuration", cause);
    rustix::io::ioctl_fionbio(&pipe, true).map_err(|cause| broken(cause.into()))?;
    let end = Instant::now() + READS;
    let mut rest = text;
    while !rest.is_empty() {
        match rustix::io::write(&pipe, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let left =
                    Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
                match poll(&mut [PollFd::new(&pipe, PollFlags::OUT)], Some(&left)) {
                    Ok(0) => return Err(broken(std::io::ErrorKind::TimedOut.into())),
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(cause) => return Err(broken(cause.into())),
                }
            }
            Err(cause) => return Err(broken(cause.into())),
        }
    }
    // With its end the agent knows that it has all.
    drop(pipe);
    Ok(())
}

/// The two listeners that the agent gets: of the guest protocol and of the control protocol.
pub(super) fn listeners(home: &Home, folder: &Folder) -> Result<(OwnedFd, OwnedFd)> {
    let make = |name: &str, kind| {
        listener(home, folder, name, kind).map_err(|cause| io_error("create", &format!("`{name}`"), cause))
    };
    Ok((make(AGENT_SOCKET, SocketType::STREAM)?, make(CTL_SOCKET, SocketType::SEQPACKET)?))
}

/// A listener in the sandbox' folder in place of what may be left of an earlier one. Its address is its real path where that is short enough, so
/// that who looks for sockets in a folder (`/proc/net/unix` shows addresses as they were given) finds it.
pub(super) fn listener(
    home: &Home,
    folder: &Folder,
    name: &str,
    kind: SocketType,
) -> rustix::io::Result<OwnedFd> {
    folder.remove_file(name)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    let path = home.folder_path(folder.id()).join(name);
    let path = if path.as_os_str().len() <= MAX_ADDRESS { path } else { folder.socket(name) };
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
