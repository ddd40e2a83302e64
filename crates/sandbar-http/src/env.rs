//! What the environment says of proxies.

use std::env;

/// The proxy for `https`, as most programs read it.
pub(crate) fn https_proxy() -> Option<String> {
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].into_iter().find_map(set)
}

/// The hosts that are reached without it.
pub(crate) fn no_proxy() -> Option<String> {
    ["NO_PROXY", "no_proxy"].into_iter().find_map(set)
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
