//! What the backend's default offers, looked at from inside.

use std::sync::Arc;
use std::time::Duration;

use sandbar_core::{
    Command, CreateOptions, EgressPolicy, Error, ErrorKind, Labels, Lifetime, Result, RunOptions, Sandbox,
    SandboxProvider,
};
use sandbar_wire::e2b::Metadata;

use crate::builtin::Builtin;
use crate::marks::Marks;

/// How long the sandbox that is looked at may live: far more than a look takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// How long the look may take on a busy machine.
const LOOK: Duration = Duration::from_secs(60);

/// The tenant of sandboxes that are the server's own. No key has it: those of tenants are random.
const OWN: &str = "server";

/// Says what there is, a line a fact.
const SCRIPT: &str = r#"
for program in bash python3 python curl git sudo tput; do
  command -v "$program" >/dev/null 2>&1 || echo "missing $program"
done
tput -T xterm-256color colors >/dev/null 2>&1 || echo "missing terminfo of xterm-256color"
node=$(node --version 2>/dev/null) && echo "node $node"
command -v python3 >/dev/null 2>&1 && python3 - <<'END'
import os, platform, sys, tempfile
with tempfile.NamedTemporaryFile(dir=os.path.expanduser("~")) as file:
    try:
        os.setxattr(file.name, "user.look", b"1")
    except OSError:
        print("missing extended attributes of files")
try:
    import venv
except ImportError:
    print("missing venv")
libc, version = platform.libc_ver()
print("python", "%d.%d" % sys.version_info[:2], platform.machine(), libc or "musl", version or "1.2")
END
true
"#;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// What `base` should have and has not.
    pub(super) missing: Vec<String>,
    /// Node's version.
    pub(super) node: Option<String>,
    /// The Python that is there.
    pub(super) python: Option<Python>,
}

/// A Python, as packages are chosen for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Python {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) machine: String,
    pub(super) libc: String,
    pub(super) libc_version: (u32, u32),
}

impl Survey {
    /// Reads what the script said. Lines that it can't have said are left out.
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("missing", what)) => found.missing.push(what.to_owned()),
                Some(("node", version)) => found.node = Some(version.to_owned()),
                Some(("python", facts)) => found.python = Python::parse(facts),
                _ => {}
            }
        }
        found
    }

    /// Says what is missing, once a start.
    pub(super) fn log(&self) {
        for what in &self.missing {
            tracing::warn!(%what, "template `base` lacks what E2B's has: install it on this machine");
        }
    }
}

impl Python {
    fn parse(facts: &str) -> Option<Self> {
        let mut words = facts.split(' ');
        let (major, minor) = version(words.next()?)?;
        let (machine, libc) = (words.next()?.to_owned(), words.next()?.to_owned());
        let libc_version = version(words.next()?)?;
        Some(Self { major, minor, machine, libc, libc_version })
    }
}

/// The first two numbers of a version.
pub(super) fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next().unwrap_or("0").parse().ok()?))
}

/// Looks in a sandbox of the server's own, which is gone afterwards.
pub(super) async fn survey(provider: &dyn SandboxProvider) -> Result<Survey> {
    let options = CreateOptions::new()
        .with_labels(labels()?)
        .with_egress(EgressPolicy::DenyAll)
        .with_deadline(DEADLINE)
        .with_lifetime(Lifetime::Owned);
    let sandbox = provider.create(options).await?;
    let looked = look(&sandbox).await;
    let destroyed = provider.destroy(sandbox.id()).await;
    let found = looked?;
    destroyed?;
    Ok(found)
}

async fn look(sandbox: &Arc<dyn Sandbox>) -> Result<Survey> {
    let options = RunOptions { timeout: Some(LOOK), ..RunOptions::default() };
    let output = sandbox.commands().run_opts(&Command::shell(SCRIPT), options).await?;
    if !output.status.is_success() {
        let said = output.stderr_lossy().trim().to_owned();
        return Err(Error::new(
            ErrorKind::Unexpected,
            "look at template",
            format!("the look at the default template failed: {said}"),
        ));
    }
    Ok(Survey::parse(&output.stdout_lossy()))
}

fn labels() -> Result<Labels> {
    let marks = Marks {
        tenant: OWN.to_owned(),
        template: Builtin::Base.name().to_owned(),
        is_internal: true,
        ..Marks::default()
    };
    marks.to_labels(&Metadata::new()).map_err(|error| Error::invalid("look at template", error.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_and_noise_is_not() {
        let found = Survey::parse("missing git\nnode v20.1.0\npython 3.11 x86_64 glibc 2.36\nelse\n");
        assert_eq!(found.missing, ["git"]);
        assert_eq!(found.node.as_deref(), Some("v20.1.0"));
        let python = found.python.expect("there is one");
        assert_eq!((python.major, python.minor, python.libc_version), (3, 11, (2, 36)));
        assert_eq!(Survey::parse("python three\n").python, None);
        assert_eq!(version("3.11.2"), Some((3, 11)));
        assert_eq!(version("2"), Some((2, 0)));
        assert_eq!(version("x"), None);
    }
}
