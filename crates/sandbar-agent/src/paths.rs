use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::users::User;

/// The path that a request means, before it is resolved: its exact bytes where given.
pub(crate) fn given(text: &str, exact: Option<&Bytes>) -> PathBuf {
    match exact {
        Some(bytes) => PathBuf::from(OsStr::from_bytes(bytes)),
        None => PathBuf::from(text),
    }
}

/// Makes a path absolute: `~` is the user's home, what is relative starts at the default working folder or else at
/// the home. Cleaned by its text alone, as Go's `filepath.Abs` does.
pub(crate) fn resolve(path: &Path, user: &User, workdir: Option<&str>) -> PathBuf {
    let base = || match workdir {
        Some(workdir) if !workdir.is_empty() => resolve(Path::new(workdir), user, None),
        _ => PathBuf::from(&user.home),
    };
    let absolute = match path.strip_prefix("~") {
        Ok(rest) => Path::new(&user.home).join(rest),
        Err(_) if path.is_absolute() => path.to_owned(),
        Err(_) => base().join(path),
    };
    clean(&absolute)
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    clean
}

/// The text of a path, and its exact bytes where it is not UTF-8.
pub(crate) fn text(path: &OsStr) -> (String, Option<Bytes>) {
    match path.to_str() {
        Some(text) => (text.to_owned(), None),
        None => (path.to_string_lossy().into_owned(), Some(path.to_owned().into_vec().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_resolve_as_documented() {
        let home = "/home/u".to_owned();
        let user = User { name: "u".into(), uid: 1, gid: 1, home, shell: String::new(), groups: vec![] };
        let resolved =
            |path: &str, workdir| resolve(Path::new(path), &user, workdir).to_str().unwrap().to_owned();
        assert_eq!(resolved("a", None), "/home/u/a");
        assert_eq!(resolved("a", Some("/w")), "/w/a");
        assert_eq!(resolved("a", Some("w")), "/home/u/w/a");
        assert_eq!(resolved("~", Some("/w")), "/home/u");
        assert_eq!(resolved("~/x", None), "/home/u/x");
        assert_eq!(resolved("~x", None), "/home/u/~x");
        assert_eq!(resolved("/a/./b//../../../c/", None), "/c");
        assert_eq!(resolved("", None), "/home/u");
    }
}
