//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ctl;
use crate::home::StoredRecord;
use crate::shim::protocol::{Orders, Reply, Report, Request};

/// What was read is written so that it reads the same again, unknown keys included where they are kept.
fn stable<T: Serialize + DeserializeOwned>(data: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(data).ok()?;
    let text = serde_json::to_string(&read).expect("a message can be written");
    let again: T = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(serde_json::to_string(&again).expect("a message can be written"), text);
    Some(read)
}

/// What passes between a shim and those who ask it.
pub fn shim_protocol(data: &[u8]) {
    stable::<Orders>(data);
    stable::<Request>(data);
    if let Some(Report::Failed(error)) = stable::<Report>(data) {
        assert!(!error.into_error("create").to_string().is_empty());
    }
    if let Some(Reply::Failed(error)) = stable::<Reply>(data) {
        assert!(!error.into_error("dial").to_string().is_empty());
    }
}

/// `record.json`, however damaged.
pub fn record(data: &[u8]) {
    let Some(record) = stable::<StoredRecord>(data) else { return };
    let _ = record.is_expired();
    for state in [sandbar_core::State::Running, sandbar_core::State::Stopped] {
        let public = record.to_public(state, None);
        assert_eq!((public.state, &public.id), (state, &record.id));
        assert!(serde_json::to_string(&public).is_ok());
    }
}

/// The agent's answers to the control protocol.
pub fn agent_control(data: &[u8]) {
    ctl::check_answer(data);
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(shim_protocol, record, agent_control);
}
