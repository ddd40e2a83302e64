use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// What a hierarchy can do for a sandbox. Others exist; these are the ones in use here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    Memory,
    Cpu,
    CpuAcct,
    Pids,
    Freezer,
}

impl Controller {
    const ALL: [Self; 5] = [Self::Memory, Self::Cpu, Self::CpuAcct, Self::Pids, Self::Freezer];

    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::CpuAcct => "cpuacct",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
        }
    }
}

/// Where groups can be made on this machine, observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// The folder of the version 2 hierarchy under which groups may be made.
    pub(crate) v2: Option<V2>,
    /// Hierarchies of version 1.
    pub(crate) v1: Vec<V1>,
    /// Why there is none at all, where that is so.
    pub lack: Option<Lack>,
}

/// Why no group can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The list of mounts could not be read.
    Unknown,
    /// No hierarchy is mounted.
    NotMounted,
    /// What is mounted is not writable for root.
    ReadOnly,
    /// An ordinary user was given none.
    NotDelegated,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V2 {
    pub(crate) parent: PathBuf,
    /// Controllers present in `parent` (they still have to be handed down).
    pub(crate) controllers: Vec<Controller>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct V1 {
    pub(crate) parent: PathBuf,
    pub(crate) controllers: Vec<Controller>,
}

impl Layout {
    /// Looks at the hierarchies that are mounted and at which of them this process may make groups in. Changes nothing.
    pub fn observe() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::from_tables(&mounts, &own, rustix::process::geteuid().is_root(), &writable)
    }

    /// Pure form of [`observe`](Self::observe): the two tables of `/proc/self`, whether this is root, and a test
    /// whether groups can be made in a folder.
    pub(crate) fn from_tables(
        mountinfo: &str,
        own: &str,
        is_root: bool,
        writable: &dyn Fn(&Path) -> bool,
    ) -> Self {
        let mut layout = Self::default();
        let mut is_mounted = false;
        for mount in mountinfo.lines().filter_map(Mount::parse) {
            is_mounted = true;
            match mount.kind {
                Kind::V2 if layout.v2.is_none() => layout.v2 = find_v2(&mount, own, is_root, writable),
                Kind::V1 if is_root => {
                    let controllers: Vec<_> = Controller::ALL
                        .into_iter()
                        .filter(|c| mount.options.split(',').any(|option| option == c.name()))
                        .filter(|c| !layout.v1.iter().any(|known| known.controllers.contains(c)))
                        .collect();
                    if !controllers.is_empty() && writable(&mount.point) {
                        layout.v1.push(V1 { parent: mount.point, controllers });
                    }
                }
                Kind::V1 | Kind::V2 => {}
            }
        }
        if layout.v2.is_none() && layout.v1.is_empty() {
            layout.lack = Some(match (is_mounted, is_root) {
                (false, _) if mountinfo.is_empty() => Lack::Unknown,
                (false, _) => Lack::NotMounted,
                (true, true) => Lack::ReadOnly,
                (true, false) => Lack::NotDelegated,
            });
        }
        layout
    }

    /// Whether a limit of this kind can be set here.
    pub fn offers(&self, controller: Controller) -> bool {
        self.v2.as_ref().is_some_and(|v2| v2.controllers.contains(&controller))
            || self.v1.iter().any(|v1| v1.controllers.contains(&controller))
    }

    #[cfg(any(test, feature = "fuzzing"))]
    /// Where groups may be made.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &PathBuf> {
        self.v2.iter().map(|v2| &v2.parent).chain(self.v1.iter().map(|v1| &v1.parent))
    }

    /// `v1`, `v2`, `hybrid` or `none`.
    pub fn name(&self) -> &'static str {
        match (&self.v2, self.v1.is_empty()) {
            (Some(_), true) => "v2",
            (Some(_), false) => "hybrid",
            (None, false) => "v1",
            (None, true) => "none",
        }
    }
}

enum Kind {
    V1,
    V2,
}

struct Mount {
    kind: Kind,
    point: PathBuf,
    root: String,
    options: String,
}

impl Mount {
    /// A line of `mountinfo`: id, parent, device, root, mount point, options, tags…, `-`, type, source, super options.
    fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let mut tail = tail.split(' ');
        let kind = match tail.next()? {
            "cgroup" => Kind::V1,
            "cgroup2" => Kind::V2,
            _ => return None,
        };
        let options = tail.nth(1).unwrap_or_default().to_owned();
        let mut head = head.split(' ').skip(3);
        let root = head.next()?.to_owned();
        let point = unescape(head.next()?);
        (point.is_absolute() && !climbs(&point)).then_some(Self { kind, point, root, options })
    }
}

/// Blanks and backslashes in a path of `mountinfo` are written as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let code = tail.first_chunk::<3>().filter(|digits| digits.iter().all(|b| (b'0'..=b'7').contains(b)));
        match code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => bytes.push(*first),
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn climbs(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

fn find_v2(mount: &Mount, own: &str, is_root: bool, writable: &dyn Fn(&Path) -> bool) -> Option<V2> {
    let found = |parent: PathBuf| {
        let text = std::fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
        let controllers = Controller::ALL
            .into_iter()
            .filter(|c| text.split_whitespace().any(|word| word == c.name()))
            .collect();
        Some(V2 { parent, controllers })
    };
    if is_root {
        return if writable(&mount.point) { found(mount.point.clone()) } else { None };
    }
    // An ordinary user can move processes only beneath a folder it owns that also holds its own group: the nearest
    // ancestor it may write to. The group itself is no use, since it has processes and so can't hand controllers down.
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let inside = Path::new(path).strip_prefix(&mount.root).ok()?;
    // A group outside of the cgroup namespace shows as one above its root: none that could be reached here.
    if climbs(inside) {
        return None;
    }
    let own = mount.point.join(inside);
    own.ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(&mount.point))
        .find(|dir| writable(dir))
        .and_then(|dir| found(dir.to_owned()))
}

fn writable(dir: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(dir.join("cgroup.procs"), Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime shared:1 - cgroup2 cgroup2 rw
";

    #[test]
    fn hybrid_as_root_has_both() {
        let layout = Layout::from_tables(HYBRID, "0::/\n", true, &|_| true);
        assert_eq!(layout.name(), "hybrid");
        assert!(layout.offers(Controller::Memory) && layout.offers(Controller::Cpu));
        assert!(!layout.offers(Controller::Pids));
        assert_eq!(layout.v1.len(), 2);
    }

    #[test]
    fn an_ordinary_user_without_delegation_has_none_and_is_told() {
        let layout = Layout::from_tables(HYBRID, "0::/user.slice/s.scope\n", false, &|_| false);
        assert_eq!(layout.name(), "none");
        assert_eq!(layout.lack, Some(Lack::NotDelegated));
        let lack = |mounts, is_root| Layout::from_tables(mounts, "", is_root, &|_| false).lack;
        assert_eq!(lack(HYBRID, true), Some(Lack::ReadOnly));
        assert_eq!(lack("22 27 0:21 / /proc rw - proc proc rw\n", true), Some(Lack::NotMounted));
        assert_eq!(lack("", true), Some(Lack::Unknown));
    }

    #[test]
    fn a_group_outside_of_the_namespace_leads_nowhere() {
        let pure = "34 30 0:30 / /none/cg rw - cgroup2 cgroup2 rw\n";
        for own in ["0::/../../other/x.scope\n", "0::/a/../../x\n", "0::relative\n"] {
            assert_eq!(Layout::from_tables(pure, own, false, &|_| true).name(), "none", "{own}");
        }
    }

    #[test]
    fn blanks_in_a_mount_point_are_read() {
        let odd = "34 30 0:30 / /none/a\\040b\\134c\\9 rw - cgroup2 cgroup2 rw\n";
        let layout = Layout::from_tables(odd, "0::/\n", true, &|_| true);
        assert_eq!(layout.v2.unwrap().parent, Path::new("/none/a b\\c\\9"));
    }

    #[test]
    fn a_delegated_ancestor_is_found_and_never_the_own_group() {
        let pure = "34 30 0:30 / /none/cg rw - cgroup2 cgroup2 rw\n";
        let own = "0::/user.slice/u.service/app.slice/x.scope\n";
        let layout =
            Layout::from_tables(pure, own, false, &|dir| dir.to_string_lossy().contains("u.service"));
        assert_eq!(layout.v2.unwrap().parent, Path::new("/none/cg/user.slice/u.service/app.slice"));
    }
}
