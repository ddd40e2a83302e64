use sandbar_core::GuestPath;
use sandbar_wire::envd::{ListDirResponse, RpcError};

use super::{entries, fault};

/// Most characters of a text of the agent's with every one of them escaped (`\u{9f}`).
const MOST_SHOWN: usize = 6 * 500;

/// Errors can be shown, and entries have paths that are ones.
pub(crate) fn check_answers(data: &[u8]) {
    let error = fault::rpc("run", &RpcError::from_response(500, data));
    plain(error.message());
    let shown = fault::readable(&String::from_utf8_lossy(data));
    plain(&shown);
    assert!(!shown.is_empty());
    let Ok(list) = serde_json::from_slice::<ListDirResponse>(data) else { return };
    for info in list.entries {
        match entries::entry(info, "list") {
            Ok(entry) => assert_eq!(GuestPath::new(entry.path.as_bytes()).ok().as_ref(), Some(&entry.path)),
            Err(error) => assert!(!error.message().chars().any(char::is_control), "{:?}", error.message()),
        }
    }
}

fn plain(text: &str) {
    assert!(text.chars().count() <= MOST_SHOWN + 100 && !text.chars().any(char::is_control), "{text:?}");
}
