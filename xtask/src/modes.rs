//! Running tests as an ordinary user, from root, without changing the machine: user, group and subordinate ids are bind mounts in a mount
//! namespace of the run's own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::crew::Job;
use crate::run::workspace;
use crate::test::{Executables, Part, TestBinary};

/// Id of the ordinary user; above what distributions give people, below what container tools take.
const UID: u32 = 61_000;
const USER: &str = "sandbar-test";
/// First of the user's 65536 subordinate ids; above what `useradd` gives by default.
const SUBORDINATE_BASE: u32 = 900_000_000;

/// As what kind of ordinary user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// With no subordinate ids.
    Single,
    /// With subordinate ids.
    Subordinate,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Subordinate => "subordinate",
        }
    }

    /// The runs of the tests of `packages` in this mode, by a user that is there as long as `stage` is: `all`, or what is not like another mode.
    pub(crate) fn jobs(
        self,
        stage: &Stage,
        binaries: &[TestBinary],
        packages: &[&str],
        executables: &Executables,
        all: bool,
    ) -> Vec<Job> {
        let all = all || self == Self::Single;
        let mut jobs = Vec::new();
        for binary in binaries.iter().filter(|binary| packages.contains(&binary.package.as_str())) {
            let part = if all { Part::All } else { binary.with_subordinate_ids() };
            let filters = match part {
                Part::All => &[],
                Part::Of(modules) => modules,
                Part::Nothing => continue,
            };
            let rig = binary.needs_rig().then_some(executables.rig.as_path());
            let mut command = stage.command_in(rig, &binary.executable, &binary.folder);
            command.args(filters);
            command.env("SANDBAR_HELPER", &executables.helper).env("SANDBAR_RIG_BIN", &executables.rig);
            let title = format!("{} {} as {USER} ({} ids)", binary.package, binary.name, self.word());
            jobs.push(Job { title, command });
        }
        jobs
    }
}

/// The files that make the user, and its home; removed at the end.
#[derive(Debug)]
pub(crate) struct Stage {
    mode: Mode,
    folder: PathBuf,
}

impl Stage {
    /// A user with a home in `above`.
    pub(crate) fn new(mode: Mode, above: &Path) -> Result<Self, String> {
        let folder = above.join(format!("sbt-{}-{}", std::process::id(), &mode.word()[..2]));
        let stage = Self { mode, folder };
        stage.fill().map_err(|e| format!("{}: {e}", stage.folder.display()))?;
        Ok(stage)
    }

    fn fill(&self) -> std::io::Result<()> {
        let home = self.folder.join("home");
        fs::create_dir_all(&home)?;
        fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        chown(&home, Some(UID), Some(UID))?;
        let passwd = fs::read_to_string("/etc/passwd")?;
        let line = format!("{USER}:x:{UID}:{UID}::{}:/bin/sh\n", home.display());
        fs::write(self.folder.join("passwd"), passwd + &line)?;
        let group = fs::read_to_string("/etc/group")?;
        fs::write(self.folder.join("group"), group + &format!("{USER}:x:{UID}:\n"))?;
        for file in ["subuid", "subgid"] {
            let ids = if self.mode == Mode::Subordinate {
                format!("{USER}:{SUBORDINATE_BASE}:65536\n")
            } else {
                String::new()
            };
            fs::write(self.folder.join(file), ids)?;
        }
        Ok(())
    }

    /// A command that runs `program` as the user with `folder` as its working folder. Arguments can be added.
    pub(crate) fn command(&self, program: &Path, folder: &Path) -> Command {
        self.command_in(None, program, folder)
    }

    /// The same, in a rig that root makes round it.
    fn command_in(&self, rig: Option<&Path>, program: &Path, folder: &Path) -> Command {
        let mut command = match rig {
            Some(rig) => Command::new(rig),
            None => Command::new("unshare"),
        };
        if rig.is_some() {
            command.args(["run", "--", "unshare"]);
        }
        command.args(["--mount", "--propagation", "private", "sh", "-euc", SCRIPT, "sh"]);
        command
            .arg(&self.folder)
            .arg(closed_ancestor().unwrap_or_default())
            .arg(workspace())
            .arg(folder)
            .arg(program);
        command.args([&UID.to_string(), USER]);
        command.env_clear();
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", self.folder.join("home")).env("TMPDIR", self.folder.join("home"));
        command.env("SANDBAR_TEST_MODE", self.mode.word());
        command.env("INSTA_WORKSPACE_ROOT", workspace()).env("INSTA_UPDATE", "no");
        for name in ["RUST_BACKTRACE", "SANDBAR_SOAK", "PROPTEST_CASES", "TERM", "CI"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The first folder above the workspace that others may not enter, if there is one.
fn closed_ancestor() -> Option<PathBuf> {
    let workspace = workspace().canonicalize().ok()?;
    let mut above: Vec<_> = workspace.ancestors().skip(1).map(Path::to_path_buf).collect();
    above.reverse();
    above.into_iter().find(|folder| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 == 0))
}

/// `$1` stage, `$2` closed folder above the workspace or empty, `$3` workspace, `$4` working folder, `$5` program, `$6` uid, `$7` user, then the program's arguments.
const SCRIPT: &str = r#"
if [ -n "$2" ]; then
  workspace=$(readlink -f "$3")
  exec 9<"$workspace"
  exec 8<"$1"
  mount -t tmpfs -o mode=755 sandbar-test "$2"
  mkdir -p "$workspace"
  mount --no-canonicalize --bind /proc/self/fd/9 "$workspace"
  if [ ! -d "$1" ]; then mkdir -p "$1"; mount --no-canonicalize --bind /proc/self/fd/8 "$1"; fi
  exec 9<&- 8<&-
fi
for file in passwd group subuid subgid; do
  [ -e "/etc/$file" ] || : >"/etc/$file"
  mount --bind "$1/$file" "/etc/$file"
done
cd "$4"
program=$5 uid=$6 user=$7
shift 7
exec setpriv --reuid="$uid" --regid="$uid" --clear-groups --inh-caps=-all env USER="$user" LOGNAME="$user" "$program" "$@"
"#;
