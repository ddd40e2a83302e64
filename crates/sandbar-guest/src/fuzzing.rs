//! What the fuzz targets run (decision 0009): it takes any bytes and panics where a promise does not hold.

use sandbar_core::GuestPath;
use sandbar_wire::envd::{ListDirResponse, RpcError};

use crate::operation::Operation;
use crate::{entries, fault};

/// Most characters of a text of the agent's with every one of them escaped (`\u{9f}`).
const MOST_SHOWN: usize = 6 * 500;

/// An agent's answers, as far as the contract's words are made of them: errors can be shown, and entries have paths that are ones.
pub fn agent_answers(data: &[u8]) {
    let operation = Operation::new("run", "test");
    let error = fault::rpc(operation, &RpcError::from_response(500, data));
    plain(error.message());
    let shown = fault::readable(&String::from_utf8_lossy(data));
    plain(&shown);
    assert!(!shown.is_empty());
    let Ok(list) = serde_json::from_slice::<ListDirResponse>(data) else { return };
    for info in list.entries {
        match entries::entry(info, operation) {
            Ok(entry) => assert_eq!(GuestPath::new(entry.path.as_bytes()).ok().as_ref(), Some(&entry.path)),
            Err(error) => assert!(!error.message().chars().any(char::is_control), "{:?}", error.message()),
        }
    }
}

/// What the scripts inside print: nothing of it is believed to be what a script of ours would print.
pub fn script_output(data: &[u8]) {
    crate::envd::check_script_output(data);
}

fn plain(text: &str) {
    assert!(text.chars().count() <= MOST_SHOWN + 100 && !text.chars().any(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(agent_answers, script_output);
}
