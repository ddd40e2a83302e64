use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use sandbar_engine::process::{Capabilities, Identity, OomScore};
use sandbar_engine::{SANDBOX_ROOT_CAPABILITIES, capability_mask};
use sandbar_wire::envd::{Code, RpcError, Timestamp, reason};
use tokio::sync::Notify;

use crate::AgentConfig;
use crate::config::IdMode;
use crate::filesystem::Watchers;
use crate::host::CpuSample;
use crate::main_command::Main;
use crate::processes::Registry;
use crate::quiet::Quiet;
use crate::users::{self, User};

/// Everything the agent knows. Shared within its one thread.
pub(crate) struct State {
    pub(crate) config: AgentConfig,
    pub(crate) defaults: RefCell<Defaults>,
    pub(crate) registry: Registry,
    pub(crate) watchers: Watchers,
    pub(crate) cpu: Cell<Option<CpuSample>>,
    pub(crate) deadline: Cell<Option<u64>>,
    pub(crate) deadline_changed: Notify,
    pub(crate) shutdown: Notify,
    /// Whether free memory is about to be given back.
    pub(crate) trims: Cell<bool>,
    pub(crate) quiet: Quiet,
    pub(crate) oom_score: Option<Arc<OomScore>>,
    pub(crate) main: Option<Rc<Main>>,
    root_capabilities: u64,
    own_uid: u32,
}

/// What `POST /init` can change.
pub(crate) struct Defaults {
    pub(crate) user: String,
    pub(crate) workdir: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) token: Option<String>,
    pub(crate) timestamp: Option<Timestamp>,
}

impl State {
    pub(crate) fn new(config: AgentConfig, oom_score: Option<OomScore>) -> io::Result<Rc<Self>> {
        let defaults = Defaults {
            user: config.default_user.clone(),
            workdir: config.default_workdir.clone(),
            env: config.env.clone(),
            token: config.access_token.clone().map(|token| token.0),
            timestamp: None,
        };
        Ok(Rc::new(Self {
            defaults: RefCell::new(defaults),
            registry: Registry::default(),
            watchers: Watchers::default(),
            cpu: Cell::new(None),
            deadline: Cell::new(config.deadline_unix_ms),
            deadline_changed: Notify::new(),
            shutdown: Notify::new(),
            trims: Cell::new(false),
            quiet: Quiet::new(),
            root_capabilities: root_capabilities(&config.root_capabilities)?,
            oom_score: oom_score.map(Arc::new),
            main: config.main.clone().map(Main::new),
            own_uid: rustix::process::geteuid().as_raw(),
            config,
        }))
    }

    /// The user of a request, which names one or means the default.
    pub(crate) fn user(&self, name: Option<&str>) -> Result<User, RpcError> {
        let default;
        let name = if let Some(name) = name {
            name
        } else {
            default = self.defaults.borrow().user.clone();
            &default
        };
        let found = users::lookup(&self.config.etc, name)
            .map_err(|error| RpcError::new(Code::Internal, format!("look up user `{name}`: {error}")))?;
        let user = found.ok_or_else(|| {
            RpcError::new(Code::Unauthenticated, format!("invalid username: '{name}'"))
                .with_reason(reason::UNKNOWN_USER)
        })?;
        if self.config.ids == IdMode::Single && user.uid != self.own_uid {
            return Err(RpcError::new(Code::PermissionDenied, Self::single_id_text(name))
                .with_reason(reason::USER_REFUSED));
        }
        Ok(user)
    }

    /// Why another user is refused, and the remedy.
    fn single_id_text(name: &str) -> String {
        format!(
            "user `{name}` is not available: this sandbox has a single id; give the host's user subordinate ids \
             (`sandbar doctor` says how), or run Sandbar as root"
        )
    }

    /// Ids and capabilities of a command of that user.
    pub(crate) fn rights(&self, user: &User) -> (Identity, Capabilities) {
        match self.config.ids {
            IdMode::Single => (Identity::Keep, Capabilities::None),
            IdMode::Mapped => {
                let groups = user.groups.clone();
                let capabilities = match user.uid {
                    0 => Capabilities::AtMost(self.root_capabilities),
                    _ => Capabilities::None,
                };
                (Identity::Set { uid: user.uid, gid: user.gid, groups }, capabilities)
            }
        }
    }

    /// Whom new files belong to; absent where that can't be chosen.
    pub(crate) fn owner(&self, user: &User) -> Option<(u32, u32)> {
        (self.config.ids == IdMode::Mapped && self.own_uid == 0).then_some((user.uid, user.gid))
    }

    /// Environment that all commands share: what tells a program where it is, then the sandbox's own.
    pub(crate) fn sandbox_env(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::from([
            ("E2B_SANDBOX".to_owned(), "true".to_owned()),
            ("E2B_SANDBOX_ID".to_owned(), self.config.sandbox_id.clone()),
            ("E2B_TEMPLATE_ID".to_owned(), self.config.template_id.clone()),
            ("SANDBAR".to_owned(), "1".to_owned()),
        ]);
        env.extend(self.defaults.borrow().env.iter().map(|(name, value)| (name.clone(), value.clone())));
        env
    }
}

/// The bit set of capabilities by their names. Only those on the engine's list can be asked for.
fn root_capabilities(names: &[String]) -> io::Result<u64> {
    names.iter().try_fold(0, |mask, name| {
        let known = SANDBOX_ROOT_CAPABILITIES.iter().find(|known| known.name.eq_ignore_ascii_case(name));
        let known = known.ok_or_else(|| {
            let text = format!("capability `{name}` is not one that sandbox root may have");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(mask | capability_mask(std::slice::from_ref(known)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_capabilities_have_bits() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(root_capabilities(&names(&["CAP_CHOWN", "cap_kill"])).unwrap(), 0b10_0001);
        assert!(root_capabilities(&names(&["CAP_SYS_ADMIN"])).unwrap_err().to_string().contains("SYS_ADMIN"));
    }
}
