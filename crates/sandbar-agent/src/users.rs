//! Users and groups of the guest, by a parser of our own: a static program has no name service.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// Largest `passwd` or `group` that is read, in bytes. The guest writes these files.
const MAX_BYTES: u64 = 1 << 20;
/// Most supplementary groups that a user gets (the kernel's own limit is 65,536).
const MAX_GROUPS: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
    pub(crate) groups: Vec<u32>,
}

/// The user of that name; absent where neither the file nor the user exists. The two that every sandbox has are known
/// even then: images without the file are usual, and something inside may have removed or spoilt it.
pub(crate) fn lookup(etc: &Path, name: &str) -> io::Result<Option<User>> {
    let passwd = read(&etc.join("passwd"));
    let listed = passwd
        .as_ref()
        .ok()
        .and_then(|passwd| passwd.lines().filter_map(parse_user).find(|user| user.name == name));
    let Some(mut user) = listed.or_else(|| built_in(name)) else {
        return passwd.map(|_| None);
    };
    let group = read(&etc.join("group")).unwrap_or_default();
    user.groups = std::iter::once(user.gid)
        .chain(group.lines().filter_map(|line| {
            let (_, gid, members) = parse_group(line)?;
            (gid != user.gid && members.split(',').any(|member| member == name)).then_some(gid)
        }))
        .take(MAX_GROUPS)
        .collect();
    Ok(Some(user))
}

fn built_in(name: &str) -> Option<User> {
    let (id, home) = match name {
        "root" => (0, "/root"),
        "user" => (1000, "/home/user"),
        _ => return None,
    };
    let (name, home, shell) = (name.to_owned(), home.to_owned(), "/bin/sh".to_owned());
    Some(User { name, uid: id, gid: id, home, shell, groups: Vec::new() })
}

/// Names for ids, read once for a listing.
#[derive(Debug, Default)]
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    pub(crate) fn load(etc: &Path) -> Self {
        let mut names = Self::default();
        for user in read(&etc.join("passwd")).unwrap_or_default().lines().filter_map(parse_user) {
            names.users.entry(user.uid).or_insert(user.name);
        }
        for (name, gid, _) in read(&etc.join("group")).unwrap_or_default().lines().filter_map(parse_group) {
            names.groups.entry(gid).or_insert_with(|| name.to_owned());
        }
        names
    }

    pub(crate) fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    pub(crate) fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

fn read(path: &Path) -> io::Result<String> {
    // The guest may have put anything in its place: opening must not wait, as a pipe or a lease would make it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(String::new()),
        Err(error) => return Err(error.into()),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    // Each command reads both files: in one piece, not in ever larger ones.
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(MAX_BYTES)).unwrap_or(0) + 64);
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn parse_user(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?;
    let home = if home.starts_with('/') { home } else { "/" }.to_owned();
    let shell = fields.next().filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh").to_owned();
    Some(User { name, uid, gid, home, shell, groups: Vec::new() })
}

pub(crate) fn parse_group(line: &str) -> Option<(&str, u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let gid = fields.nth(1)?.parse().ok()?;
    Some((name, gid, fields.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn users_come_with_their_groups() {
        let etc = tempfile::tempdir().unwrap();
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\n#no\nbad:x:nan:0::/:\nuser:x:1000:1001:U:/home/user:\n";
        std::fs::write(etc.path().join("passwd"), passwd).unwrap();
        std::fs::write(etc.path().join("group"), "a:x:5:root,user\nuser:x:1001:user\nb:x:6:users\n").unwrap();
        let user = lookup(etc.path(), "user").unwrap().unwrap();
        assert_eq!((user.uid, user.gid, user.groups), (1000, 1001, vec![1001, 5]));
        assert_eq!((user.home.as_str(), user.shell.as_str()), ("/home/user", "/bin/sh"));
        assert_eq!(lookup(etc.path(), "bad").unwrap(), None);
        let none = etc.path().join("none");
        assert_eq!(lookup(&none, "other").unwrap(), None);
        assert_eq!(lookup(&none, "user").unwrap().unwrap().home, "/home/user");
        assert_eq!(lookup(&none, "root").unwrap().unwrap().uid, 0);
        let names = Names::load(etc.path());
        assert_eq!((names.user(0), names.user(7), names.group(5)), ("root".into(), "7".into(), "a".into()));
    }

    proptest! {
        #[test]
        fn any_line_is_safe(line in "[a-z0-9:#,/]{0,60}") {
            let _ = (parse_user(&line), parse_group(&line));
        }
    }
}
