//! What a root file system made elsewhere lacks to be a sandbox': the user that commands run as, and the folder where they begin.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, mkdirat, openat, statat};
use rustix::io::Errno;
use sandbar_core::ErrorKind;

use super::job::{Failure, Report};
use super::tree::{Copier, is_opaque, is_whiteout, kind, open_folder, reopen};

/// The user and its group.
const NAME: &str = "user";
const ID: u32 = sandbar_engine::USER_ID;
/// The lists where an image has none and a line is to be added.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n";
const GROUP: &str = "root:x:0:\nuser:x:1000:\n";
/// Highest number of a user or group: the last of the 65,536 that a sandbox has.
const MAX_ID: u32 = 65_535;
/// Longest list of users or groups that is read, in bytes: some ten thousand of them.
const MAX_LIST: u64 = 1 << 20;
/// Where a sandbox mounts something of its own, so that an image may have folders there and nothing else.
const MOUNTED: [&CStr; 3] = [c"proc", c"sys", c"dev"];
/// Most folders in the path of a working folder.
const MAX_WORKDIR: usize = 64;

/// Writes what is missing into the folder `into`, as a layer on top of `layers`, the lowest first. Answers the name of the user that was asked for, by name or number.
pub(super) fn complete(
    layers: &[OwnedFd],
    into: &OwnedFd,
    user: Option<&str>,
    workdir: Option<&str>,
) -> Result<Report, Failure> {
    let mut layers = layers.iter().rev().map(reopen).collect::<Result<Vec<_>, _>>()?;
    let into = reopen(into)?;
    let mut report = Report::default();
    for number in 1..layers.len() {
        if is_opaque(&layers[number - 1], b".")? {
            report.hidden = layers.len() - number;
            layers.truncate(number);
            break;
        }
    }
    for name in MOUNTED {
        if other(&layers, name)?.is_some() {
            let why = format!(
                "`/{}` is no folder in it, and something is to be mounted there",
                name.to_string_lossy()
            );
            return Err(Failure::new(ErrorKind::InvalidInput, why));
        }
    }
    let etc = look_for(&layers, c"etc")?;
    let passwd = read(&etc, c"passwd")?;
    let group = read(&etc, c"group")?;
    // Without lists of its own it has those that lie below every root file system, with the user in them.
    let mut new_passwd = passwd.as_deref().and_then(with_user);
    let mut new_group = group.as_deref().and_then(with_group);
    if let Some(user) = user {
        let lists = (new_passwd.as_deref().or(passwd.as_deref()), new_group.as_deref().or(group.as_deref()));
        let chosen = choose(user, lists.0.unwrap_or(PASSWD), lists.1.unwrap_or(GROUP))?;
        report.user = Some(chosen.name);
        new_passwd = chosen.passwd.or(new_passwd);
        new_group = chosen.group.or(new_group);
    }
    if new_passwd.is_some() || new_group.is_some() {
        let made = make(&into, c"etc")?;
        for (name, text) in [(c"passwd", &new_passwd), (c"group", &new_group)] {
            if let Some(text) = text {
                write(&made, name, text.as_bytes())?;
                report.entries += 1;
                report.bytes += text.len() as u64;
            }
        }
        dress(&made, &etc, b"etc")?;
        report.entries += 1;
    }
    if let Some(workdir) = workdir {
        report.entries += folders(&layers, &into, workdir)?;
    }
    if report.entries > 0 {
        dress(&into, &layers, b".")?;
    }
    rustix::fs::syncfs(&into).map_err(|cause| Failure::io("write back", b".", cause))?;
    Ok(report)
}

/// The folder `name` of each of `above`, the topmost first, as far as they are seen together.
fn look_for(above: &[OwnedFd], name: &CStr) -> Result<Vec<OwnedFd>, Failure> {
    let mut found = Vec::new();
    for folder in above {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(stat) if kind(&stat) == FileType::Directory => {
                let inner =
                    open_folder(folder, name).map_err(|cause| Failure::io("open", name.to_bytes(), cause))?;
                let hides = is_opaque(&inner, name.to_bytes())?;
                found.push(inner);
                if hides {
                    break;
                }
            }
            Ok(_) => break,
            Err(cause) => return Err(Failure::io("look at", name.to_bytes(), cause)),
        }
    }
    Ok(found)
}

/// What the name is in the topmost layer that has it, if it is something and no folder.
fn other(above: &[OwnedFd], name: &CStr) -> Result<Option<FileType>, Failure> {
    for folder in above {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Ok(stat) if is_whiteout(&stat) => return Ok(None),
            Ok(stat) => return Ok(Some(kind(&stat)).filter(|kind| *kind != FileType::Directory)),
            Err(cause) => return Err(Failure::io("look at", name.to_bytes(), cause)),
        }
    }
    Ok(None)
}

fn read(above: &[OwnedFd], name: &CStr) -> Result<Option<String>, Failure> {
    let broken = |cause: std::io::Error| Failure::io("read", name.to_bytes(), cause);
    for folder in above {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            Ok(stat) if kind(&stat) == FileType::RegularFile => {}
            Ok(_) => return Ok(None),
            Err(cause) => return Err(broken(cause.into())),
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(folder, name, flags, Mode::empty()).map_err(|cause| broken(cause.into()))?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(
            &mut std::io::Read::take(std::fs::File::from(file), MAX_LIST + 1),
            &mut bytes,
        )
        .map_err(broken)?;
        if bytes.len() as u64 > MAX_LIST {
            let why = format!("`etc/{}` is longer than {MAX_LIST} bytes", name.to_string_lossy());
            return Err(Failure::new(ErrorKind::LimitExceeded, why));
        }
        return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
    }
    Ok(None)
}

fn field(line: &str, number: usize) -> &str {
    line.split(':').nth(number).unwrap_or_default()
}

/// The list of users with ours in it; `None` if it has it. A user of that name with another number gives way: what belongs to the sandbox' user has one number everywhere.
fn with_user(list: &str) -> Option<String> {
    let id = ID.to_string();
    let mut named = list.lines().filter(|line| field(line, 0) == NAME).peekable();
    // Whoever looks for the name finds the first, so one that is right does not make up for another.
    if named.peek().is_some() && named.all(|line| field(line, 2) == id) {
        return None;
    }
    let ours = format!("{NAME}:x:{ID}:{ID}:{NAME}:/home/{NAME}:{}", shell(list));
    let mut lines: Vec<&str> = list.lines().filter(|line| field(line, 0) != NAME).collect();
    // Whoever looks for the name of the number finds the first.
    let place = lines.iter().position(|line| field(line, 2) == id).unwrap_or(lines.len());
    lines.insert(place, &ours);
    Some(lines.join("\n") + "\n")
}

/// As root has it: that one is there.
fn shell(list: &str) -> &str {
    let root = list.lines().find(|line| field(line, 0) == "root").map_or("", |line| field(line, 6));
    if root.starts_with('/') && root.ends_with("sh") { root } else { "/bin/sh" }
}

fn with_group(list: &str) -> Option<String> {
    let id = ID.to_string();
    if list.lines().any(|line| field(line, 0) == NAME || field(line, 2) == id) {
        return None;
    }
    Some(with_line(list, &format!("{NAME}:x:{ID}:")))
}

/// The user that an image names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    name: String,
    /// The lists with what they lacked of it.
    passwd: Option<String>,
    group: Option<String>,
}

/// Finds a user that is named by name or number, with a group after a colon where there is one. Commands run as somebody by name, so numbers without one get one.
fn choose(asked: &str, passwd: &str, group: &str) -> Result<Chosen, Failure> {
    let (user, of) = asked.split_once(':').map_or((asked, None), |(user, of)| (user, Some(of)));
    let of = of.filter(|of| !of.is_empty());
    let listed = find(passwd, user);
    let uid = match listed {
        Some(line) => number("user", field(line, 2))?,
        None => number_of("user", user, "passwd")?,
    };
    let primary = listed.map(|line| number("group", field(line, 3))).transpose()?;
    let gid = match of {
        Some(of) => match find(group, of) {
            Some(line) => number("group", field(line, 2))?,
            None => number_of("group", of, "group")?,
        },
        // As every runtime has it: a number that nobody has is of root's group.
        None => primary.unwrap_or(0),
    };
    let mut chosen = Chosen::default();
    if of.is_some() && !group.lines().any(|line| field(line, 2) == gid.to_string()) {
        chosen.group = Some(with_line(group, &format!("gid-{gid}:x:{gid}:")));
    }
    if let Some(line) = listed.filter(|_| primary == Some(gid)) {
        field(line, 0).clone_into(&mut chosen.name);
        return Ok(chosen);
    }
    chosen.name = if of.is_some() { format!("uid-{uid}-gid-{gid}") } else { format!("uid-{uid}") };
    let (home, shell) = match listed {
        Some(line) => (field(line, 5), field(line, 6)),
        None => ("/", shell(passwd)),
    };
    let line = format!("{}:x:{uid}:{gid}::{home}:{shell}", chosen.name);
    match passwd.lines().find(|line| field(line, 0) == chosen.name) {
        None => chosen.passwd = Some(with_line(passwd, &line)),
        Some(there) if field(there, 2) == uid.to_string() && field(there, 3) == gid.to_string() => {}
        Some(_) => {
            let why = format!("the image's `/etc/passwd` has another user `{}`", chosen.name);
            return Err(Failure::new(ErrorKind::InvalidInput, why));
        }
    }
    Ok(chosen)
}

/// The line of a name, or else of a number.
fn find<'a>(list: &'a str, wanted: &str) -> Option<&'a str> {
    let good = || list.lines().filter(|line| !field(line, 0).is_empty() && !line.starts_with('#'));
    good().find(|line| field(line, 0) == wanted).or_else(|| good().find(|line| field(line, 2) == wanted))
}

fn number_of(what: &str, text: &str, list: &str) -> Result<u32, Failure> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(what, text);
    }
    let why = format!("the image's {what} `{}` is not in its `/etc/{list}`", text.escape_debug());
    Err(Failure::new(ErrorKind::InvalidInput, why))
}

fn number(what: &str, text: &str) -> Result<u32, Failure> {
    text.parse().ok().filter(|id| *id <= MAX_ID).ok_or_else(|| {
        let why =
            format!("the image's {what} `{}`: expected a number from 0 to {MAX_ID}", text.escape_debug());
        Failure::new(ErrorKind::InvalidInput, why)
    })
}

fn with_line(list: &str, line: &str) -> String {
    let end = if list.is_empty() || list.ends_with('\n') { "" } else { "\n" };
    format!("{list}{end}{line}\n")
}

/// Makes the folders of a path that are not there, and answers how many it made.
fn folders(layers: &[OwnedFd], into: &OwnedFd, path: &str) -> Result<u64, Failure> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.len() > MAX_WORKDIR || names.contains(&"..") {
        let why = format!("`{}` is no working folder", path.escape_debug());
        return Err(Failure::new(ErrorKind::InvalidInput, why));
    }
    let (mut above, mut made) = (Vec::new(), Vec::new());
    let mut here: Vec<OwnedFd> = layers.iter().map(reopen).collect::<Result<_, _>>()?;
    let mut is_missing = false;
    for name in &names {
        let name = CString::new(*name).map_err(|_| Failure::io("make", path.as_bytes(), Errno::INVAL))?;
        match other(&here, &name)? {
            None => {}
            // It leads to where it leads.
            Some(FileType::Symlink) => return Ok(0),
            Some(_) => {
                let why =
                    format!("`{}` is no working folder: there is a file in its way", path.escape_debug());
                return Err(Failure::new(ErrorKind::InvalidInput, why));
            }
        }
        let found = look_for(&here, &name)?;
        is_missing |= found.is_empty();
        above.push((name, std::mem::take(&mut here)));
        here = found;
    }
    if !is_missing {
        return Ok(0);
    }
    let mut at = reopen(into)?;
    for (name, of) in &above {
        let below = look_for(of, name)?;
        let next = make(&at, name)?;
        made.push((next, below));
        at = reopen(&made[made.len() - 1].0)?;
    }
    // From the inside: making something in a folder changes its time.
    for (folder, below) in made.iter().rev() {
        dress(folder, below, path.as_bytes())?;
    }
    Ok(made.len() as u64)
}

/// Makes a folder, or opens the one that was made here before.
fn make(into: &OwnedFd, name: &CStr) -> Result<OwnedFd, Failure> {
    let broken = |cause: Errno| Failure::io("make", name.to_bytes(), cause);
    match mkdirat(into, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(broken(cause)),
    }
    let folder = open_folder(into, name).map_err(broken)?;
    fchmod(&folder, Mode::from_raw_mode(0o755)).map_err(broken)?;
    Ok(folder)
}

/// A folder hides the one below in rights and owner as well, so it has the same.
fn dress(folder: &OwnedFd, below: &[OwnedFd], path: &[u8]) -> Result<(), Failure> {
    match below.first() {
        Some(below) => Copier::new(None).finish_folder(below, folder, path),
        None => Ok(()),
    }
}

fn write(into: &OwnedFd, name: &CStr, bytes: &[u8]) -> Result<(), Failure> {
    let broken = |cause: std::io::Error| Failure::io("write", name.to_bytes(), cause);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(into, name, flags, Mode::RUSR | Mode::WUSR).map_err(|cause| broken(cause.into()))?;
    fchmod(&file, Mode::from_raw_mode(0o644)).map_err(|cause| broken(cause.into()))?;
    std::io::Write::write_all(&mut std::fs::File::from(file), bytes).map_err(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_added_where_it_lacks_and_found_by_its_number() {
        let list = "root:x:0:0:root:/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/sh\n";
        let with = with_user(list).unwrap();
        let lines: Vec<_> = with.lines().collect();
        assert_eq!(lines[1], "user:x:1000:1000:user:/home/user:/bin/ash");
        assert_eq!(lines[2], "node:x:1000:1000::/home/node:/bin/sh");
        assert_eq!(with_user(&with), None);
        assert!(with_user("user:x:7:7::/:/bin/sh").unwrap().starts_with("user:x:1000:"));
        for list in [
            "user:x:0:0::/:/bin/sh\nuser:x:1000:0::/:/bin/sh\n",
            "user:x:1000:0::/:/bin/sh\nuser:x:0:0::/:/bin/sh\n",
        ] {
            let with = with_user(list).unwrap();
            assert_eq!(with.lines().filter(|line| field(line, 0) == "user").count(), 1, "{with}");
            assert!(with.contains("user:x:1000:"), "{with}");
        }
        assert_eq!(with_group("root:x:0:").unwrap(), "root:x:0:\nuser:x:1000:\n");
        assert_eq!(with_group("node:x:1000:\n"), None);
        let list = with.as_str();
        let group = "root:x:0:\nuser:x:1000:\nextra:x:7:\n";
        for (asked, name) in [("0", "root"), ("node", "node"), ("1000:1000", "user"), ("root:root", "root")] {
            let expected = Chosen { name: name.into(), ..Chosen::default() };
            assert_eq!(choose(asked, list, group).unwrap(), expected, "{asked}");
        }
        let chosen = choose("4242:4343", list, group).unwrap();
        assert_eq!(chosen.name, "uid-4242-gid-4343");
        let passwd = chosen.passwd.unwrap();
        assert!(passwd.starts_with(list), "{passwd}");
        assert!(passwd.ends_with("\nuid-4242-gid-4343:x:4242:4343::/:/bin/ash\n"), "{passwd}");
        assert!(chosen.group.unwrap().ends_with("\ngid-4343:x:4343:\n"));
        assert!(choose("4711", list, group).unwrap().passwd.unwrap().contains("\nuid-4711:x:4711:0::/:"));
        // A group of its own choice leaves everybody else's as it is.
        let chosen = choose("node:extra", list, group).unwrap();
        assert!(chosen.passwd.unwrap().contains("\nuid-1000-gid-7:x:1000:7::/home/node:"));
        assert_eq!(chosen.group, None);
        for bad in ["nobody-here", "root:nobody-here", "65536", "0:4294967296", ":0"] {
            assert!(choose(bad, list, group).is_err(), "{bad}");
        }
    }
}
