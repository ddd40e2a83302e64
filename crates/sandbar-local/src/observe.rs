//! The state of a sandbox is what is observed: the table of decision 0002.

use std::time::Duration;

use sandbar_core::{
    DeadlineAction, EgressPolicy, EgressSummary, ExitStatus, GatewayState, MainState, MainStatus,
    PortMapping, Result, SandboxId, SandboxRecord, State,
};

use crate::ask::DESTRUCTION;
use crate::error::unknown;
use crate::home::{Folder, Home, StoredRecord};
use crate::template::Base;

/// How long after a deadline its sandbox may still be guarded: the shim acts at once, and then begins to take it down.
const OVERDUE: Duration = Duration::from_secs(10);
/// How often a record may change under a reader: a creation, a take-over and an end make three.
const CHANGES: usize = 8;

/// What stands in the data folder under an id, and what was seen of it.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) folder: Folder,
    pub(crate) record: StoredRecord,
    /// Whether a shim guards it (or somebody acts as one).
    pub(crate) guarded: bool,
    /// Whether its agent runs; not looked at while it is guarded.
    pub(crate) agent_lives: bool,
}

impl Observed {
    /// Looks; `None` means that there is positively no such sandbox.
    pub(crate) fn look(home: &Home, id: &SandboxId, operation: &'static str) -> Result<Option<Self>> {
        let blind = |why: &dyn std::fmt::Display| {
            unknown(operation, id.as_str(), why)
                .with_hint(format!("look at `{}`", home.folder_path(id).display()))
        };
        let Some(folder) = Folder::open(home, id).map_err(|cause| blind(&cause))? else { return Ok(None) };
        for _ in 0..CHANGES {
            let Some(record) =
                folder.record().map_err(|cause| blind(&format!("its record can't be read: {cause}")))?
            else {
                return Ok(None);
            };
            let guarded =
                folder.shim_lives().map_err(|cause| blind(&format!("its lock can't be read: {cause}")))?;
            let agent_lives = match &record.private.agent {
                _ if guarded => true,
                Some(agent) => agent.lives().map_err(|cause| blind(&cause))?,
                None => false,
            };
            if guarded || agent_lives {
                return Ok(Some(Self { folder, record, guarded, agent_lives }));
            }
            // Nobody is there: but the shim may have written its last word after the record was read above.
            let last =
                folder.record().map_err(|cause| blind(&format!("its record can't be read: {cause}")))?;
            match last {
                None => return Ok(None),
                Some(last) if last.state == record.state && last.private.agent == record.private.agent => {
                    return Ok(Some(Self { folder, record: last, guarded, agent_lives }));
                }
                Some(_) => {}
            }
        }
        Err(blind(&"its record changes all the time"))
    }

    /// Its state.
    pub(crate) fn state(&self) -> State {
        match self.record.state {
            state if self.guarded => state,
            State::Running | State::Sleeping if self.agent_lives => self.record.state,
            // Wreckage of a creation and an interrupted destroy keep their names until the next command that writes removes them.
            State::Creating => State::Creating,
            State::Destroying => State::Destroying,
            _ => State::Stopped,
        }
    }

    /// The ports that somebody of ours serves: without a shim there are none, whoever listens at their addresses.
    pub(crate) fn served_ports(&self) -> Vec<PortMapping> {
        let serves = self.guarded && matches!(self.state(), State::Running | State::Sleeping);
        if serves { self.record.ports.clone() } else { Vec::new() }
    }

    /// The egress policy in force, without secrets; `None` if it is not kept.
    pub(crate) fn policy(&self) -> std::io::Result<Option<EgressPolicy>> {
        match &self.record.egress.policy {
            Some(policy) => Ok(Some(policy.clone())),
            None => Ok(self.folder.policy()?.map(|policy| policy.public().clone())),
        }
    }

    /// How its gateway is: that is a part of its shim.
    fn gateway(&self) -> Option<GatewayState> {
        match self.record.egress.gateway {
            Some(_) if self.state() != State::Running => None,
            Some(GatewayState::Serving) if !self.guarded => Some(GatewayState::Down),
            gateway => gateway,
        }
    }

    /// The record as readers get it; `base` is what the host's programs are now.
    pub(crate) fn public(&self, base: Option<&Base>) -> SandboxRecord {
        let state = self.state();
        let mut reasons: Vec<String> = Vec::new();
        match &self.record.reason {
            Some(reason) => reasons.push(reason.clone()),
            None if state == State::Stopped
                && self.record.state != State::Stopped
                && self.record.is_expired() =>
            {
                reasons.push(
                    "its deadline passed while nothing watched over it: the next command that writes removes it"
                        .into(),
                );
            }
            None if state == State::Stopped && self.record.state != State::Stopped => {
                reasons.push("its processes ended while nothing watched over it".into());
            }
            None if state == State::Creating && !self.guarded => {
                reasons.push("wreckage of a creation that did not end".into());
            }
            None => {}
        }
        if self.guarded && is_overdue(&self.record) {
            reasons.push(
                "its deadline passed, and its shim does not act on it: the next command that writes does"
                    .into(),
            );
        }
        if !self.guarded && state == State::Running && !self.record.ports.is_empty() {
            reasons.push("nobody serves its published ports now: the next command that needs it does".into());
        }
        if self.gateway() == Some(GatewayState::Down) {
            let way_out = if self.guarded {
                "a new sandbox has one"
            } else {
                "the next command that needs it brings it back"
            };
            reasons.push(format!("its gateway is down, so it has no network: {way_out}"));
        }
        let made_over = &self.record.private.fingerprint;
        if !made_over.is_empty() && base.is_some_and(|base| base.fingerprint != *made_over) {
            reasons.push("base changed".into());
        }
        let reason = if reasons.is_empty() { None } else { Some(reasons.join("; ")) };
        let mut record = self.record.to_public(state, reason);
        record.ports = self.served_ports();
        // What can't be read is not known, and no reason to hide the rest.
        record.egress = EgressSummary { policy: self.policy().ok().flatten(), gateway: self.gateway() };
        if let Some(main) = &mut record.main {
            self.correct(main, state);
        }
        record
    }

    /// What the record says of the main command is of when somebody last watched over it.
    fn correct(&self, main: &mut MainStatus, state: State) {
        // A shim that wrote `stopped` is on its way out: it watches over nothing any more.
        let is_watched = self.guarded && state != State::Stopped;
        if is_watched || main.state == MainState::Exited {
            return;
        }
        (main.pid, main.next_start) = (None, None);
        if state == State::Running {
            main.state = MainState::Unknown;
        } else {
            // Nothing runs in it any more, and nobody saw how that came.
            main.exit =
                if main.state == MainState::BackingOff { main.exit } else { Some(ExitStatus::Unknown) };
            main.state = MainState::Exited;
        }
    }
}

/// Whether its shim missed the deadline, or the end of the destruction that came of it: then it does not serve any more, whatever it holds.
pub(crate) fn is_overdue(record: &StoredRecord) -> bool {
    let grace = if record.state == State::Destroying { DESTRUCTION } else { OVERDUE };
    // A sleep that does not come off is tried again, and is no reason to take it down.
    record.is_expired_for(grace)
        && (record.on_deadline == DeadlineAction::Destroy || record.state == State::Destroying)
}

/// Why a sandbox that nobody guards should not be there any more: for whoever holds its lock, or saw that nobody does.
pub(crate) fn is_over(record: &StoredRecord) -> std::io::Result<Option<&'static str>> {
    if record.is_expired() && record.on_deadline == DeadlineAction::Destroy {
        return Ok(Some("its deadline passed"));
    }
    if let Some(owner) = &record.private.owner
        && !owner.lives()?
    {
        return Ok(Some("the process that it belonged to is gone"));
    }
    Ok(match record.state {
        State::Creating => Some("its creation did not end"),
        State::Destroying => Some("its destruction did not end"),
        _ => None,
    })
}
