//! From a mend of the table to a command for this machine.

use std::path::{Path, PathBuf};

use super::condition::{Fault, Mend, Package};
use super::surroundings::{Container, Surroundings};

/// Where settings are kept for later boots.
const SETTINGS: &str = "/etc/sysctl.d/60-sandbar.conf";
/// Longest file of the host's that is read for this.
const MAX_FILE: u64 = 1 << 20;

/// Where `useradd` begins to give subordinate ids (`SUB_UID_MIN`), and how many it gives (`SUB_UID_COUNT`).
const FIRST_SUBORDINATE: u64 = 100_000;
const SUBORDINATES: u64 = 65_536;

/// Whose distribution this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Debian,
    Fedora,
    Arch,
    Alpine,
    Suse,
    Unknown,
}

/// What commands depend on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(super) is_root: bool,
    pub(super) family: Family,
    pub(super) container: Option<Container>,
    user: String,
    uid: u32,
    home: PathBuf,
    helper: Option<PathBuf>,
    covers: Vec<String>,
    /// Whether systemd runs the machine (`sd_booted` looks at the same).
    has_systemd: bool,
    /// Ids that could be given to this user.
    free_ids: String,
}

impl Facts {
    /// Looks; for somebody who has bad news to tell, since it reads a few files.
    pub(crate) fn read(home: &Path, helper: Option<&Path>) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let mounts = bounded("/proc/self/mountinfo").unwrap_or_default();
        Self {
            is_root: uid == 0,
            family: family(&bounded("/etc/os-release").unwrap_or_default()),
            container: Surroundings::look().container,
            user: user_name(&bounded("/etc/passwd").unwrap_or_default(), uid),
            uid,
            home: home.to_owned(),
            helper: helper.map(Path::to_owned),
            covers: covers(&mounts),
            has_systemd: Path::new("/run/systemd/system").is_dir(),
            free_ids: free_ids(&["/etc/subuid", "/etc/subgid"].map(|file| bounded(file).unwrap_or_default())),
        }
    }

    /// What lies over parts of `/proc`.
    pub(super) fn covers(&self) -> &[String] {
        &self.covers
    }

    /// The commands that mend `fault` here.
    pub(crate) fn remedies(&self, fault: &Fault) -> Vec<String> {
        fault.mends.iter().filter_map(|mend| self.command(*mend)).collect()
    }

    fn command(&self, mend: Mend) -> Option<String> {
        match mend {
            Mend::Root(text) => Some(self.as_root(&self.fill(text))),
            Mend::Host(text) => self.container.is_none().then(|| self.as_root(&self.fill(text))),
            Mend::Systemd(text) => self.is_systemds().then(|| self.as_root(&self.fill(text))),
            Mend::SystemdUser(text) => self.is_systemds().then(|| self.fill(text)),
            Mend::Container(text) => self.container.is_some().then(|| self.fill(text)),
            Mend::User(text) => Some(self.fill(text)),
            Mend::HostUser(text) => self.container.is_none().then(|| self.fill(text)),
            Mend::Setting(setting) => {
                let command = self.as_root(&keep_setting(setting));
                // A container shares the settings of its machine, and can't change them.
                Some(if self.container.is_some() {
                    format!("{command}  # on the container's host")
                } else {
                    command
                })
            }
            Mend::Package(package) => self.install(package).map(|text| self.as_root(&text)),
        }
    }

    fn is_systemds(&self) -> bool {
        self.has_systemd && self.container.is_none()
    }

    fn as_root(&self, text: &str) -> String {
        if self.is_root { text.to_owned() } else { format!("sudo {text}") }
    }

    fn install(&self, package: &Package) -> Option<String> {
        let Package { debian, fedora, arch, alpine, suse } = package;
        let text = match self.family {
            Family::Debian | Family::Unknown => format!("apt-get install -y {debian}"),
            Family::Fedora => format!("dnf install -y {fedora}"),
            Family::Arch => format!("pacman -S --noconfirm {arch}"),
            Family::Alpine => format!("apk add {alpine}"),
            Family::Suse => format!("zypper install -y {suse}"),
        };
        // Not every distribution has everything.
        (!text.ends_with(' ')).then_some(text)
    }

    fn fill(&self, text: &str) -> String {
        let parent = self.home.parent().unwrap_or(Path::new("/"));
        let helper = self.helper.as_deref().unwrap_or(Path::new("/usr/local/bin/sandbar"));
        text.replace("{user}", &quoted(&self.user))
            .replace("{uid}", &self.uid.to_string())
            .replace("{ids}", &self.free_ids)
            .replace("{home}", &quoted(&self.home.to_string_lossy()))
            .replace("{parent}", &quoted(&parent.to_string_lossy()))
            .replace("{helper}", &quoted(&helper.to_string_lossy()))
            .replace("{covers}", &self.covers.iter().map(|at| quoted(at)).collect::<Vec<_>>().join(" "))
    }
}

/// Sets a setting, now and at later boots.
pub(super) fn keep_setting(setting: &str) -> String {
    format!("sh -c 'echo \"{setting}\" >> {SETTINGS} && sysctl -p {SETTINGS}'")
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn family(os_release: &str) -> Family {
    let words: Vec<&str> = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .collect();
    let is = |names: &[&str]| words.iter().any(|word| names.contains(word));
    if is(&["debian", "ubuntu"]) {
        Family::Debian
    } else if is(&["fedora", "rhel", "centos"]) {
        Family::Fedora
    } else if is(&["arch"]) {
        Family::Arch
    } else if is(&["alpine"]) {
        Family::Alpine
    } else if words.iter().any(|word| word.contains("suse")) {
        Family::Suse
    } else {
        Family::Unknown
    }
}

/// The user's name, or its number where it has none.
fn user_name(passwd: &str, uid: u32) -> String {
    let number = uid.to_string();
    let name = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    });
    name.unwrap_or(&number).to_owned()
}

/// The first range of ids, as `useradd` cuts them, that none of these files gives to anybody.
fn free_ids(files: &[String]) -> String {
    let taken: Vec<(u64, u64)> = files
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| {
            let mut fields = line.trim().split(':').skip(1);
            let (first, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((u64::from(first), u64::from(first) + u64::from(count)))
        })
        .collect();
    let mut first = FIRST_SUBORDINATE;
    // Each turn goes past a range, so there are no more turns than ranges.
    while let Some((_, end)) = taken.iter().find(|(start, end)| *start < first + SUBORDINATES && first < *end)
    {
        first = *end;
    }
    format!("{first}-{}", first + SUBORDINATES - 1)
}

/// Mounts below `/proc`. A fresh one is refused where any of them hides something.
fn covers(mountinfo: &str) -> Vec<String> {
    let mut covers: Vec<String> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| point.starts_with("/proc/"))
        .map(str::to_owned)
        .collect();
    covers.dedup();
    covers
}

pub(super) fn bounded(path: &str) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::condition::Weight;

    fn facts(is_root: bool, family: Family, container: Option<Container>) -> Facts {
        Facts {
            is_root,
            family,
            container,
            user: "ann".into(),
            uid: 1001,
            home: "/home/ann b/data".into(),
            helper: None,
            covers: vec!["/proc/keys".into()],
            has_systemd: false,
            free_ids: "100000-165535".into(),
        }
    }

    const UIDMAP: Package = Package {
        debian: "uidmap",
        fedora: "shadow-utils",
        arch: "shadow",
        alpine: "shadow-uidmap",
        suse: "",
    };
    const FAULT: Fault = Fault {
        id: "x/y",
        says: "",
        weight: Weight::Missing,
        mends: &[
            Mend::Package(&UIDMAP),
            Mend::Host("umount {covers}"),
            Mend::Container("docker run X"),
            Mend::User("chmod 700 {home}"),
        ],
    };

    #[test]
    fn a_command_fits_the_user_the_distribution_and_the_place() {
        let all = facts(false, Family::Debian, None).remedies(&FAULT);
        assert_eq!(
            all,
            ["sudo apt-get install -y uidmap", "sudo umount /proc/keys", "chmod 700 '/home/ann b/data'"]
        );
        let all = facts(true, Family::Alpine, Some(Container::Docker)).remedies(&FAULT);
        assert_eq!(all, ["apk add shadow-uidmap", "docker run X", "chmod 700 '/home/ann b/data'"]);
        let all = facts(true, Family::Suse, None).remedies(&FAULT);
        assert_eq!(all[0], "umount /proc/keys");
    }

    #[test]
    fn systemds_commands_are_for_where_it_runs() {
        const FAULT: Fault = Fault {
            id: "x/y",
            says: "",
            weight: Weight::Missing,
            mends: &[Mend::Systemd("systemctl x"), Mend::SystemdUser("systemd-run x")],
        };
        let mut facts = facts(false, Family::Debian, None);
        assert_eq!(facts.remedies(&FAULT), [""; 0]);
        facts.has_systemd = true;
        assert_eq!(facts.remedies(&FAULT), ["sudo systemctl x", "systemd-run x"]);
        facts.container = Some(Container::Docker);
        assert_eq!(facts.remedies(&FAULT), [""; 0]);
    }

    #[test]
    fn a_range_is_proposed_that_nobody_has() {
        let free = |uids: &str, gids: &str| free_ids(&[uids.to_owned(), gids.to_owned()]);
        assert_eq!(free("", "# nothing\nodd\n"), "100000-165535");
        assert_eq!(free("a:100000:65536\n", ""), "165536-231071");
        assert_eq!(free("b:165536:65536\n", "a:100000:65536\n"), "231072-296607");
        assert_eq!(free("a:1:100000\n", "a:165535:1\n"), "165536-231071");
        assert_eq!(free("a:18446744073709551615:2\n", "a:300000:65536"), "100000-165535");
    }

    #[test]
    fn distributions_are_told_by_themselves_or_by_what_they_are_like() {
        assert_eq!(family("NAME=x\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Family::Debian);
        assert_eq!(family("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), Family::Fedora);
        assert_eq!(family("ID=\"opensuse-leap\"\n"), Family::Suse);
        assert_eq!(family(""), Family::Unknown);
    }

    #[test]
    fn what_a_shell_would_read_is_quoted() {
        assert_eq!(quoted("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(quoted("a'b $(x)"), r"'a'\''b $(x)'");
    }
}
