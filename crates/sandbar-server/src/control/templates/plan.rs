use std::fs::File;
use std::path::{Path, PathBuf};

use sandbar_core::{BuildStep, Command, EnvVars, GuestPath, UserName};

use super::copy::{self, Found, Rewritten};
use super::order::{Copy, Order, Step, shell};
use super::probe::Surroundings;

/// Where files of a step wait inside until they are moved to where only root may write.
const STAGING: &str = "/tmp/.sandbar-copy";

/// Moves what a step copied from `$1` to `$2`: `$3` is the name of the one file that it is, or nothing. Folders that are there keep their owner
/// and mode; new ones are `$4`'s.
const MOVE: &str = r#"set -e
if [ -n "$3" ]; then
  if [ ! -d "$2" ]; then
    up=$(dirname "$2")
    [ -d "$up" ] || { mkdir -p "$up"; chown "$4" "$up" 2>/dev/null || true; }
    mv -f "$1/$3" "$2"
  else
    mv -f "$1/$3" "$2/"
  fi
else
  [ -d "$2" ] || { mkdir -p "$2"; chown "$4" "$2" 2>/dev/null || true; }
  cd "$1"
  find . -mindepth 1 -type d -exec sh -c 'to=$1; shift; for d; do
    [ -d "$to/$d" ] || { mkdir "$to/$d"; chmod "$(stat -c %a "$d")" "$to/$d"; chown "$(stat -c %u:%g "$d")" "$to/$d"; }
  done' sh "$2" {} +
  find . -mindepth 1 ! -type d -exec sh -c 'to=$1; shift; for f; do mv -f "$f" "$to/$f" || exit 1; done' sh "$2" {} +
fi
cd /
rm -rf "$1""#;

/// Makes the links that [`copy::LINKS`] lists, below `$1`.
const LINKS: &str = r#"set -e
cd "$1"
xargs -0 -n 200 sh -ec 'while [ $# -gt 1 ]; do mkdir -p -- "$(dirname -- "$2")"; ln -sfnT -- "$1" "$2"; shift 2; done' sh < .sandbar-links
rm -f .sandbar-links"#;

/// Makes the folder `$1` for `$2`, where only root may.
const MAKE: &str = r#"[ -d "$1" ] || { mkdir -p "$1" && chown "$2" "$1"; }"#;

/// The backend's steps, and which of the order's each belongs to.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<BuildStep>,
    /// For each of them the number of the order's step, from 1, and whether it is what the step is about.
    pub(super) labels: Vec<(usize, bool)>,
    /// Who runs commands in the end.
    pub(super) user: String,
    /// Where they run in the end.
    pub(super) workdir: String,
}

/// Why there is no plan: in which step, and what.
#[derive(Debug)]
pub(super) struct Unplanned {
    pub(super) step: usize,
    pub(super) why: String,
}

struct Planner<'a> {
    plan: Plan,
    base: &'a Surroundings,
    /// Who runs commands now, as the backend knows it.
    user: UserName,
    /// Who shall run them, as the order has it.
    wanted: UserName,
    workdir: String,
    folder: &'a Path,
}

/// Turns an order into steps of the backend. Archives are made in `folder`; `uploads` has the uploaded ones.
pub(super) fn plan(
    order: &Order,
    base: &Surroundings,
    uploads: &[PathBuf],
    folder: &Path,
) -> Result<Plan, Unplanned> {
    let mut planner = Planner {
        plan: Plan::default(),
        base,
        user: base.user.clone(),
        wanted: base.user.clone(),
        workdir: base.workdir.clone(),
        folder,
    };
    let mut uploads = uploads.iter();
    for (index, step) in order.steps.iter().enumerate() {
        let number = index + 1;
        let outcome = match step {
            Step::Copy(copy) => match uploads.next() {
                Some(upload) => planner.copy(number, copy, upload),
                None => Err("its files are not here any more: build again".to_owned()),
            },
            Step::Run { command, user } => planner.run(number, command, user.as_ref()),
            Step::Workdir(path) => planner.workdir(number, path),
            Step::User(user) => planner.user(number, user),
            Step::Env(env) => {
                planner.push(number, true, BuildStep::Env(env.clone()));
                Ok(())
            }
        };
        outcome.map_err(|why| Unplanned { step: number, why })?;
    }
    Ok(planner.finish(order))
}

impl Planner<'_> {
    fn push(&mut self, number: usize, is_main: bool, step: BuildStep) {
        self.plan.steps.push(step);
        self.plan.labels.push((number, is_main));
    }

    /// What follows is done as `user`.
    fn become_user(&mut self, number: usize, user: &UserName) {
        if self.user != *user {
            self.push(number, false, BuildStep::User(user.clone()));
            self.user = user.clone();
        }
    }

    fn run(&mut self, number: usize, command: &str, user: Option<&UserName>) -> Result<(), String> {
        let user = user.cloned().unwrap_or_else(|| self.wanted.clone());
        self.check_user(&user)?;
        self.become_user(number, &user);
        self.push(number, true, BuildStep::Run(shell(command)));
        Ok(())
    }

    fn user(&mut self, number: usize, user: &UserName) -> Result<(), String> {
        self.check_user(user)?;
        self.wanted = user.clone();
        self.user = user.clone();
        self.push(number, true, BuildStep::User(user.clone()));
        Ok(())
    }

    fn workdir(&mut self, number: usize, path: &str) -> Result<(), String> {
        let path = self.absolute(path)?;
        let user = self.wanted.clone();
        if !self.may_write(&path, &user) {
            self.become_user(number, &root());
            let make = Command::new("/bin/sh").args(["-c", MAKE, "sh", &path, user.as_str()]);
            self.push(number, false, BuildStep::Run(make));
        }
        self.become_user(number, &user);
        self.push(number, true, BuildStep::Workdir(guest(&path)?));
        self.workdir = path;
        Ok(())
    }

    fn copy(&mut self, number: usize, copy: &Copy, upload: &Path) -> Result<(), String> {
        let user = copy.user.clone().unwrap_or_else(|| self.wanted.clone());
        self.check_user(&user)?;
        let tar = self.folder.join(format!("{number}.tar"));
        let mut file =
            File::create_new(&tar).map_err(|error| format!("its files could not be kept: {error}"))?;
        let Rewritten { found, has_links } = copy::rewrite(upload, copy, &mut file)?;
        let to = self.absolute(&copy.to)?;
        let is_folder = copy.to.ends_with('/') || matches!(copy.to.rsplit('/').next(), Some("." | ".."));
        // Where a file goes is known without a look only if its destination is a folder, or has its own name.
        let (place, is_known, name) = match found {
            Found::Tree => (to.clone(), true, String::new()),
            Found::File(name) if is_folder => (to.clone(), true, name),
            Found::File(name) => {
                let (up, last) = to.rsplit_once('/').unwrap_or(("", &to));
                let is_same = last == name;
                let up = if up.is_empty() { "/" } else { up };
                (if is_same { up.to_owned() } else { to.clone() }, is_same, name)
            }
        };
        if is_known && self.may_write(&place, &user) {
            self.become_user(number, &user);
            self.push(number, true, BuildStep::CopyFile { tar, to: guest(&place)? });
            self.links(number, &place, has_links);
            return Ok(());
        }
        let staging = format!("{STAGING}-{number}");
        self.become_user(number, &user);
        self.push(number, true, BuildStep::CopyFile { tar, to: guest(&staging)? });
        self.links(number, &staging, has_links);
        if self.base.has_root {
            self.become_user(number, &root());
        }
        // A destination that is known to be a folder is one by its `/`, whether it is there or not.
        let (target, name) = if is_folder && !name.is_empty() { (to, String::new()) } else { (to, name) };
        let moved = Command::new("/bin/sh").args(["-c", MOVE, "sh", &staging, &target, &name, user.as_str()]);
        self.push(number, false, BuildStep::Run(moved));
        Ok(())
    }

    /// Makes the links that could not be copied, as whoever copied.
    fn links(&mut self, number: usize, place: &str, has_links: bool) {
        if has_links {
            let make = Command::new("/bin/sh").args(["-c", LINKS, "sh", place]);
            self.push(number, false, BuildStep::Run(make));
        }
    }

    fn finish(mut self, order: &Order) -> Plan {
        let last = order.steps.len() + 1;
        let wanted = self.wanted.clone();
        self.become_user(last, &wanted);
        for (command, step) in [
            (order.start.as_deref(), BuildStep::Start as fn(Command) -> BuildStep),
            (order.ready.as_deref(), BuildStep::Ready as fn(Command) -> BuildStep),
        ] {
            if let Some(command) = command {
                self.push(last, true, step(shell(command)));
            }
        }
        if self.plan.steps.is_empty() {
            // Only a new name for what is there.
            self.push(last, false, BuildStep::Env(EnvVars::new()));
        }
        wanted.as_str().clone_into(&mut self.plan.user);
        self.plan.workdir = self.workdir;
        self.plan
    }

    fn check_user(&self, user: &UserName) -> Result<(), String> {
        if self.base.has_root || user.as_str() != "root" {
            return Ok(());
        }
        Err("it wants to be root, and sandboxes of this backend have a single id: leave the user out, or run the server with subordinate ids or as root".to_owned())
    }

    /// Whether `user` may write there as a matter of course. Where there is no root nobody else can help.
    fn may_write(&self, path: &str, user: &UserName) -> bool {
        let is_below = |folder: &str| {
            folder.len() > 1
                && path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        !self.base.has_root
            || user.as_str() == "root"
            || (*user == self.base.user && is_below(&self.base.home))
            || is_below("/tmp")
    }

    fn absolute(&self, path: &str) -> Result<String, String> {
        let joined = if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.workdir) };
        let path = GuestPath::new(&joined).map_err(|error| error.message().to_owned())?;
        path.to_str().map(str::to_owned).ok_or_else(|| "its path is not UTF-8".to_owned())
    }
}

fn guest(path: &str) -> Result<GuestPath, String> {
    GuestPath::new(path).map_err(|error| error.message().to_owned())
}

fn root() -> UserName {
    UserName::new("root").expect("it is a name")
}

#[cfg(test)]
mod tests {
    use sandbar_core::BuildCache;

    use super::*;

    fn planned(steps: Vec<Step>, has_root: bool) -> Result<Vec<String>, String> {
        let user = UserName::new("user").unwrap();
        let base = Surroundings { user, home: "/home/user".into(), workdir: "/home/user".into(), has_root };
        let order = Order {
            base: super::super::order::Base::default(),
            steps,
            start: Some("serve".into()),
            ready: None,
            cache: BuildCache::Use,
        };
        let planned = plan(&order, &base, &[], Path::new("/")).map_err(|error| error.why)?;
        assert_eq!(planned.steps.len(), planned.labels.len());
        let word = |step: &BuildStep| match step {
            BuildStep::Run(_) => "run".to_owned(),
            BuildStep::User(user) => user.to_string(),
            BuildStep::Workdir(path) => path.to_string(),
            BuildStep::Start(_) => "start".to_owned(),
            _ => "other".to_owned(),
        };
        Ok(planned.steps.iter().map(word).collect())
    }

    fn run(user: Option<&str>) -> Step {
        Step::Run { command: "true".into(), user: user.map(|user| UserName::new(user).unwrap()) }
    }

    #[test]
    fn a_step_of_another_user_changes_nothing_for_those_after_it() {
        let steps = planned(vec![run(Some("root")), run(Some("root")), run(None)], true).unwrap();
        assert_eq!(steps, ["root", "run", "run", "user", "run", "start"]);
        assert_eq!(planned(vec![run(Some("root"))], true).unwrap(), ["root", "run", "user", "start"]);
        assert!(planned(vec![run(Some("root"))], false).unwrap_err().contains("root"));
    }

    #[test]
    fn folders_are_made_by_who_may() {
        let app = || Step::Workdir("/app".into());
        assert_eq!(
            planned(vec![app(), run(None)], true).unwrap(),
            ["root", "run", "user", "/app", "run", "start"]
        );
        assert_eq!(planned(vec![app()], false).unwrap(), ["/app", "start"]);
        assert_eq!(planned(vec![Step::Workdir("a/b".into())], true).unwrap(), ["/home/user/a/b", "start"]);
        assert!(planned(vec![Step::Workdir("../..".into())], true).is_err());
    }
}
