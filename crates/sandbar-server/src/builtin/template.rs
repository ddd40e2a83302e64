//! The making of `code-interpreter-v1`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use sandbar_core::{
    BuildLog, BuildSpec, BuildStep, Command, EnvVars, Error, ErrorKind, GuestPath, Result, SandboxProvider,
    TemplateId, UserName,
};

use crate::builtin::survey::{Python, Survey};
use crate::builtin::{Builtin, packages, service};
use crate::config::{CodeInterpreter, PackageSet};

/// Oldest Python that the packages are made for.
const OLDEST_PYTHON: (u32, u32) = (3, 11);

/// How long one step may take: unpacking and compiling some 300 MB on a busy machine.
const STEP: Duration = Duration::from_secs(20 * 60);

/// What the label of a template that was made here begins with; its fingerprint follows.
const LABEL: &str = "code interpreter ";

/// Where packages lie while they are installed.
const WHEELS: &str = "/opt/code-interpreter/wheels";

/// Makes the Python of the template, installs packages, and lets it do once what would be done at each first use.
const INSTALL: &str = r#"set -e
cd /opt/code-interpreter
python3 -m venv --without-pip python
set -- wheels/pip-*.whl
python/bin/python "$1/pip" install --quiet --no-compile --no-index --no-input --find-links wheels wheels/*.whl
rm -rf wheels
python/bin/python -m compileall -q service
# With all processors if that works here. What can't be compiled (a package's own bad examples) is nobody's loss.
python/bin/python -m compileall -q -j 0 python/lib || python/bin/python -m compileall -q python/lib || :
python/bin/python - <<'END'
import importlib.util
for name in ('ipykernel', 'tornado', 'pandas', 'matplotlib.pyplot'):
    if importlib.util.find_spec(name.split('.')[0]):
        importlib.import_module(name)
END
"#;

/// Makes the template, unless it is there as it would be made.
pub(super) async fn make(
    provider: &dyn SandboxProvider,
    wanted: &CodeInterpreter,
    found: &Survey,
) -> Result<TemplateId> {
    let id = TemplateId::new(Builtin::CodeInterpreter.name())?;
    let python = usable(found)?;
    let known = match wanted {
        CodeInterpreter::Folder(folder) => Some(packages::in_folder(folder)?),
        CodeInterpreter::Download(_) | CodeInterpreter::Off => None,
    };
    let label = format!("{LABEL}{}", fingerprint(wanted, python, known.as_deref()));
    if is_there(provider, &id, &label).await? {
        return Ok(id);
    }
    let Some(builds) = provider.builds() else {
        let reason = provider.missing_reason("builds").unwrap_or_else(|| "it has no builds".to_owned());
        return Err(Error::new(
            ErrorKind::Unsupported,
            "make template",
            format!("this backend can't build templates ({reason})"),
        ));
    };
    tracing::info!("making code-interpreter-v1; creations of it wait");
    let scratch = tempfile::tempdir().map_err(|cause| {
        Error::new(ErrorKind::Unexpected, "make template", format!("no folder to work in: {cause}"))
    })?;
    let wheels = match (wanted, known) {
        (_, Some(wheels)) => wheels,
        (CodeInterpreter::Download(set), None) => {
            packages::fetch(*set, python, scratch.path()).await?;
            packages::in_folder(scratch.path())?
        }
        (CodeInterpreter::Folder(_) | CodeInterpreter::Off, None) => {
            return Err(Error::invalid("make template", "nobody asked for the code interpreter"));
        }
    };
    let tar = scratch.path().join("wheels.tar");
    let written = tar.clone();
    tokio::task::spawn_blocking(move || write_wheels(&wheels, &written)).await.map_err(|cause| {
        Error::new(ErrorKind::Unexpected, "make template", format!("an archive was not written: {cause}"))
    })??;
    let spec = BuildSpec::new(id.clone(), steps(tar)?).with_label(label).with_step_timeout(STEP);
    let mut log = builds.build(spec).await?;
    while let Some(event) = log.next().await {
        match event? {
            BuildLog::Step { number, of, text, is_cached } => {
                tracing::info!(number, of, is_cached, %text, "making code-interpreter-v1");
            }
            BuildLog::Line(line) => tracing::debug!(%line, "making code-interpreter-v1"),
            BuildLog::Done(_) => {
                tracing::info!("code-interpreter-v1 is there");
                return Ok(id);
            }
            _ => {}
        }
    }
    Err(Error::new(ErrorKind::Protocol, "make template", "the build ended without a template"))
}

/// Whether there is one that is as good: made here from the same, or put there by the operator.
async fn is_there(provider: &dyn SandboxProvider, id: &TemplateId, label: &str) -> Result<bool> {
    let Some(templates) = provider.templates() else { return Ok(false) };
    let Some(there) = templates.get(id).await? else { return Ok(false) };
    let old = there.label.as_deref().unwrap_or_default();
    if !old.starts_with(LABEL) {
        tracing::info!("code-interpreter-v1 is a template of the operator's and stays as it is");
    }
    Ok(old == label || !old.starts_with(LABEL))
}

/// The Python, if it is there and new enough.
fn usable(found: &Survey) -> Result<&Python> {
    let (major, minor) = OLDEST_PYTHON;
    let complain = |why: String| {
        Err(Error::new(ErrorKind::Unavailable, "make template", why)
            .with_hint(format!("install Python {major}.{minor} or newer on this machine as `python3`")))
    };
    match &found.python {
        None => complain("the default template has no Python".to_owned()),
        Some(python) if (python.major, python.minor) < OLDEST_PYTHON => {
            complain(format!("the default template has Python {}.{}", python.major, python.minor))
        }
        Some(_) if found.missing.iter().any(|what| what == "venv") => {
            complain("Python in the default template has no module `venv`".to_owned())
        }
        Some(python) => Ok(python),
    }
}

fn fingerprint(wanted: &CodeInterpreter, python: &Python, known: Option<&[PathBuf]>) -> String {
    let set = match wanted {
        CodeInterpreter::Off => "off",
        CodeInterpreter::Folder(_) => "folder",
        CodeInterpreter::Download(PackageSet::Minimal) => "minimal",
        CodeInterpreter::Download(PackageSet::Full) => "full",
    };
    let names = known.unwrap_or_default().iter().filter_map(|path| path.file_name()?.to_str());
    let python = format!("{}.{} {}", python.major, python.minor, python.machine);
    service::fingerprint([set, &python].into_iter().chain(names).chain([INSTALL]))
}

fn write_wheels(wheels: &[PathBuf], tar: &Path) -> Result<()> {
    let fail = |path: &Path, cause: std::io::Error| {
        Error::new(ErrorKind::Unexpected, "make template", format!("`{}`: {cause}", path.display()))
    };
    let file = std::fs::File::create(tar).map_err(|cause| fail(tar, cause))?;
    let mut archive = service::Tar::to(std::io::BufWriter::new(file));
    for path in wheels {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let wheel = std::fs::File::open(path).map_err(|cause| fail(path, cause))?;
        let size = wheel.metadata().map_err(|cause| fail(path, cause))?.len();
        archive.member(name, 0o644, tar::EntryType::Regular, size, wheel)?;
    }
    let writer = archive.end()?;
    writer.into_inner().map_err(|cause| fail(tar, cause.into_error()))?;
    Ok(())
}

fn steps(wheels: PathBuf) -> Result<Vec<BuildStep>> {
    let path = |text: &str| GuestPath::new(text);
    Ok(vec![
        BuildStep::User(UserName::new("user")?),
        BuildStep::Copy { tar: service::archive()?.into(), to: path(service::FOLDER)? },
        BuildStep::CopyFile { tar: wheels, to: path(WHEELS)? },
        BuildStep::Run(Command::shell(INSTALL)),
        BuildStep::Copy { tar: service::home()?.into(), to: path("/home/user")? },
        BuildStep::Env(EnvVars::new().with("PATH", service::PATH)?),
        BuildStep::Start(Command::new(format!("{}/service/run.sh", service::FOLDER))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survey(python: &str, missing: &[&str]) -> Survey {
        let (major, minor) = crate::builtin::survey::version(python).unwrap();
        Survey {
            missing: missing.iter().map(|&what| what.to_owned()).collect(),
            python: Some(Python {
                major,
                minor,
                machine: "x86_64".into(),
                libc: "glibc".into(),
                libc_version: (2, 36),
            }),
            ..Survey::default()
        }
    }

    #[test]
    fn a_python_that_will_not_do_is_told_with_what_to_do() {
        assert!(usable(&survey("3.11", &["git"])).is_ok());
        for bad in [Survey::default(), survey("3.10", &[]), survey("2.7", &[]), survey("3.12", &["venv"])] {
            let error = usable(&bad).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("3.11")), "{error}");
        }
    }

    #[test]
    fn another_set_or_python_is_another_template() {
        let (full, minimal) =
            (CodeInterpreter::Download(PackageSet::Full), CodeInterpreter::Download(PackageSet::Minimal));
        let (old, new) = (survey("3.11", &[]), survey("3.12", &[]));
        let of = |wanted: &CodeInterpreter, found: &Survey| {
            fingerprint(wanted, found.python.as_ref().unwrap(), None)
        };
        assert_eq!(of(&full, &old), of(&full, &old));
        assert_ne!(of(&full, &old), of(&minimal, &old));
        assert_ne!(of(&full, &old), of(&full, &new));
    }
}
