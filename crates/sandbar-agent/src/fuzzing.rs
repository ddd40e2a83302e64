//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::users::{User, parse_group, parse_user};
use crate::{AgentConfig, control, files, paths, sudo};

/// An upload's body: the first line is its content type.
pub fn multipart(data: &[u8]) {
    files::fuzzing::multipart(data);
}

/// What headers and queries ask for: a header's value, or a query, a line.
pub fn requests(data: &[u8]) {
    files::fuzzing::requests(data);
}

/// Compressed uploads.
pub fn gunzip(data: &[u8]) {
    files::fuzzing::gunzip(data);
}

/// The arguments of `sudo`, and its packets.
pub fn sudo_messages(data: &[u8]) {
    sudo::fuzzing::messages(data);
}

/// The guest's `passwd` and `group`.
pub fn accounts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for user in text.lines().filter_map(parse_user) {
        assert!(!user.name.is_empty() && !user.name.contains(':') && user.groups.is_empty());
        assert!(user.home.starts_with('/') && !user.shell.is_empty());
    }
    for (name, _, members) in text.lines().filter_map(parse_group) {
        assert!(!name.is_empty() && !members.contains(':'));
    }
}

/// Packets of the host side, and the configuration it gives.
pub fn control_packets(data: &[u8]) {
    if let Err(why) = control::understands(data) {
        assert!(!why.is_empty());
    }
    if let Ok(config) = serde_json::from_slice::<AgentConfig>(data) {
        let text = serde_json::to_vec(&config).expect("a configuration can be written");
        let again: AgentConfig = serde_json::from_slice(&text).expect("what was written can be read");
        assert_eq!(serde_json::to_vec(&again).expect("a configuration can be written"), text);
        let shown: HashSet<_> = format!("{config:?}").split('"').map(str::to_owned).collect();
        let secret = |text: &str| text.len() > 20 && shown.contains(text);
        assert!(!config.access_token.is_some_and(|token| secret(&token.0)));
    }
}

/// Paths of requests: home, working folder and path, a line each. Whatever they are, the result is absolute and clean.
pub fn paths(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let home = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let workdir = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let path = lines.next().unwrap_or_default();
    let user = User { name: "u".into(), uid: 1, gid: 1, home, shell: String::new(), groups: Vec::new() };
    let given = paths::given("unused", Some(&path.to_vec().into()));
    let resolved = paths::resolve(&given, &user, Some(&workdir));
    let mut parts = resolved.components();
    assert_eq!(parts.next(), Some(Component::RootDir));
    assert!(parts.all(|part| matches!(part, Component::Normal(_))), "{}", resolved.display());
    assert_eq!(paths::resolve(&resolved, &user, None), resolved);
    if given.is_absolute() {
        assert_eq!(paths::resolve(&given, &user, None), resolved, "home and folder do not matter");
    }
    let (text, exact) = paths::text(resolved.as_os_str());
    let back = paths::given(&text, exact.as_ref());
    assert_eq!(back, resolved);
    assert_eq!(exact.is_some(), Path::new(&text).as_os_str().as_bytes() != resolved.as_os_str().as_bytes());
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(
        multipart,
        requests,
        gunzip,
        sudo_messages,
        accounts,
        control_packets,
        paths
    );
}
