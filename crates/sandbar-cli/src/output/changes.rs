use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbar::{FileChange, GuestPath};
use serde_json::{Value, json};

use crate::output::escape;
use crate::output::record::word;

/// What `watch` prints.
#[derive(Debug)]
pub(crate) enum ChangeLine<'a> {
    /// From here on nothing is missed.
    Armed(&'a GuestPath),
    Change(&'a FileChange),
    /// Some were lost.
    Overflow,
    /// There is nothing more to tell, for this reason.
    End(&'a str),
}

impl ChangeLine<'_> {
    /// For a person; `None` where there is nothing to say.
    pub(crate) fn to_text(&self) -> Option<String> {
        match self {
            Self::Armed(_) | Self::End(_) => None,
            Self::Overflow => Some("overflow".to_owned()),
            Self::Change(FileChange { kind, path, to }) => {
                let to = to.as_ref().map(|to| format!(" -> {}", escape(&to.display()))).unwrap_or_default();
                Some(format!("{:<7} {}{to}", word(kind), escape(&path.display())))
            }
        }
    }

    /// The form of decision 0004.
    pub(crate) fn to_json(&self) -> String {
        let (kind, path, to, reason) = match self {
            Self::Armed(path) => ("armed".to_owned(), Some(*path), None, None),
            Self::Change(FileChange { kind, path, to }) => (word(kind), Some(path), to.as_ref(), None),
            Self::Overflow => ("overflow".to_owned(), None, None, None),
            Self::End(why) => ("end".to_owned(), None, None, Some(*why)),
        };
        let mut value = json!({"version": 1, "kind": kind, "reason": reason});
        put(&mut value, "path", path);
        put(&mut value, "to", to);
        value.to_string()
    }
}

fn put(value: &mut Value, key: &str, path: Option<&GuestPath>) {
    match path.map(|path| path.to_str().ok_or(path)) {
        None => value[key] = Value::Null,
        Some(Ok(text)) => value[key] = text.into(),
        Some(Err(path)) => value[format!("{key}_base64")] = STANDARD.encode(path.as_bytes()).into(),
    }
}

#[cfg(test)]
mod tests {
    use sandbar::FileChangeKind;

    use super::*;

    fn path(text: &[u8]) -> GuestPath {
        GuestPath::new(text).unwrap()
    }

    #[test]
    fn a_rename_has_both_names() {
        let change =
            FileChange { kind: FileChangeKind::Rename, path: path(b"/a\x1b[2J"), to: Some(path(b"/b\xff")) };
        let line = ChangeLine::Change(&change);
        assert_eq!(line.to_text().unwrap(), "rename  /a\\x1b[2J -> /b\\xff");
        let form: Value = serde_json::from_str(&line.to_json()).unwrap();
        assert_eq!(
            form,
            json!({"version": 1, "kind": "rename", "reason": null, "path": "/a\x1b[2J", "to_base64": "L2L/"})
        );
    }

    #[test]
    fn every_line_has_every_key() {
        let change = FileChange { kind: FileChangeKind::Write, path: path(b"/a"), to: None };
        for line in [
            ChangeLine::Armed(&change.path),
            ChangeLine::Change(&change),
            ChangeLine::Overflow,
            ChangeLine::End("gone"),
        ] {
            let form: Value = serde_json::from_str(&line.to_json()).unwrap();
            for key in ["version", "kind", "path", "to", "reason"] {
                assert!(form.get(key).is_some(), "{form}");
            }
        }
        assert_eq!(ChangeLine::Change(&change).to_text().unwrap(), "write   /a");
    }
}
