//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

pub use crate::build_file::fuzzing::build_file;
pub use crate::egress::fuzzing::{egress_rule, hostname};
use crate::{
    EnvVars, GuestPath, Labels, ProjectId, SandboxId, SandboxName, TemplateId, UserName, VolumeName,
};

/// Paths inside a sandbox are normal or refused, and no operation on them leaves that.
pub fn guest_path(data: &[u8]) {
    let (first, second) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Ok(path) = GuestPath::new(first) else { return };
    normal(&path);
    assert_eq!(GuestPath::new(path.as_bytes()).ok().as_ref(), Some(&path));
    assert!(!path.to_string().chars().any(char::is_control));
    assert!(path.is_within(&path));
    if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        normal(&parent);
        assert!(path.is_within(&parent) && !parent.is_within(&path));
        assert_eq!(parent.join(name).ok().as_ref(), Some(&path));
    } else {
        assert!(path.is_root());
    }
    if let Ok(joined) = path.join(second.get(1..).unwrap_or_default()) {
        normal(&joined);
        assert!(joined.is_within(&path));
    }
}

fn normal(path: &GuestPath) {
    let bytes = path.as_bytes();
    assert!(bytes.starts_with(b"/") && !bytes.contains(&0) && bytes.len() < 4096);
    let mut segments = bytes[1..].split(|byte| *byte == b'/');
    assert!(path.is_root() || segments.all(|segment| !matches!(segment, b"" | b"." | b"..")));
}

/// Names, labels and environment: kept as they are or refused, and no error shows a value of the environment.
pub fn names(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(id) = SandboxId::new(text) {
        // It becomes the name of a folder.
        assert!(id.as_str() == text && !text.contains(['/', '.', '\0']) && !text.starts_with('-'));
    }
    assert!(
        SandboxName::new(text).is_ok_and(|name| name.as_str() == text) || SandboxName::new(text).is_err()
    );
    for safe in [
        SandboxName::new(text).is_ok(),
        VolumeName::new(text).is_ok(),
        UserName::new(text).is_ok(),
        ProjectId::new(text).is_ok(),
        TemplateId::new(text).is_ok(),
    ] {
        assert!(
            !safe || (text.is_ascii() && !text.contains([' ', '\0', '\n', '\u{1b}']) && !text.is_empty())
        );
    }
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match Labels::new().with(key, value) {
        Ok(labels) => assert_eq!(labels.get(key), Some(value)),
        Err(error) => assert!(!error.message().chars().any(char::is_control), "{}", error.message()),
    }
    // A value that no name or message holds.
    let secret = format!("s3cr3t-{value}");
    match EnvVars::new().with(key, &*secret) {
        Ok(env) => assert_eq!(env.get(key), Some(&*secret)),
        Err(error) => {
            assert!(key.contains("s3cr3t") || !format!("{error} {error:?}").contains("s3cr3t"));
        }
    }
}

/// The shell of the reference backend: any script is parsed or refused.
pub fn shell(data: &[u8]) {
    if let Err(why) = crate::memory::parse_script(data) {
        assert!(!why.is_empty() && !why.chars().any(char::is_control), "{why:?}");
    }
}

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(build_file, guest_path, names, shell, hostname, egress_rule);
}
