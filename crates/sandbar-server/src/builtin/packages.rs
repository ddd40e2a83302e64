//! Python packages, fetched as data: nothing of them is run here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sandbar_core::{Error, ErrorKind, Result};
use tokio::process::Command;

use crate::builtin::service::{FULL, MINIMAL};
use crate::builtin::survey::{Python, version};
use crate::config::PackageSet;

/// How long a download may take: some 70 MB, over a slow line.
const DOWNLOAD: Duration = Duration::from_secs(15 * 60);

/// How long a program may take to say its version.
const ANSWER: Duration = Duration::from_secs(20);

/// Lines of what pip said that go into an error.
const LINES: usize = 3;

/// What a folder of packages has to hold, by the names that their files begin with.
const NEEDED: &[&str] = &["pip-", "ipykernel-", "jupyter_client-", "tornado-", "pyzmq-"];

/// Where pip is looked for: the system's Python, which is the one in the `host` template, first.
const PIPS: &[&[&str]] =
    &[&["/usr/bin/python3", "-m", "pip"], &["python3", "-m", "pip"], &["pip3"], &["pip"]];

/// Oldest minor version of glibc that packages are built for.
const OLDEST_GLIBC: u32 = 5;

/// What can be done where packages can't be fetched.
const OTHER_WAY: &str = "fetch them elsewhere into a folder and start with `--code-interpreter-packages FOLDER` \
                         (docs/code-interpreter.md says how), or switch it off with `--code-interpreter off`";

/// The packages in `folder`, sorted; an error if one lacks without which nothing works.
pub(super) fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |cause: std::io::Error| {
        Error::new(
            ErrorKind::Config,
            "make template",
            format!("the folder of packages `{}` can't be read: {cause}", folder.display()),
        )
    };
    let mut wheels = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            wheels.push(path);
        }
    }
    wheels.sort();
    let has = |start: &str| {
        wheels.iter().filter_map(|path| path.file_name()?.to_str()).any(|name| name.starts_with(start))
    };
    if let Some(missing) = NEEDED.iter().find(|start| !has(start)) {
        let message = format!("`{}` holds no package `{missing}….whl`", folder.display());
        return Err(Error::new(ErrorKind::Config, "make template", message)
            .with_hint("docs/code-interpreter.md says what belongs there"));
    }
    Ok(wheels)
}

/// Fetches packages for `python` into `folder` with this machine's pip and its settings.
pub(super) async fn fetch(set: PackageSet, python: &Python, folder: &Path) -> Result<()> {
    let (pip, runs_on) = find_pip().await?;
    let list = folder.join("requirements.txt");
    let text = match set {
        PackageSet::Minimal => MINIMAL.to_owned(),
        PackageSet::Full => format!("{MINIMAL}{FULL}"),
    };
    std::fs::write(&list, text).map_err(|cause| {
        Error::new(ErrorKind::Unexpected, "make template", format!("`{}`: {cause}", list.display()))
    })?;
    let mut command = program(&pip);
    command.args(["download", "--quiet", "--no-input", "--disable-pip-version-check"]);
    command.args(["--only-binary", ":all:"]);
    if runs_on != Some((python.major, python.minor)) {
        command.args(for_python(python));
    }
    command.arg("--dest").arg(folder).arg("--requirement").arg(&list);
    let output = finished(&mut command, DOWNLOAD).await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let end = lines[lines.len().saturating_sub(LINES)..].join(" / ");
        let message = format!("packages can't be fetched with `{}`: {end}", pip.join(" "));
        return Err(Error::new(ErrorKind::Unavailable, "make template", message).with_hint(OTHER_WAY));
    }
    Ok(())
}

/// The first pip that answers, and the Python that it runs on.
async fn find_pip() -> Result<(Vec<&'static str>, Option<(u32, u32)>)> {
    for words in PIPS {
        let mut command = program(words);
        let Ok(output) = finished(command.arg("--version"), ANSWER).await else { continue };
        if output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout);
            let runs_on = said
                .rsplit_once("(python ")
                .and_then(|(_, rest)| version(rest.trim_end().trim_end_matches(')')));
            return Ok((words.to_vec(), runs_on));
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "make template", "this machine has no pip to fetch packages with")
        .with_hint(OTHER_WAY))
}

/// What tells pip to choose for another Python than its own.
fn for_python(python: &Python) -> Vec<OsString> {
    let Python { major, minor, machine, libc, libc_version } = python;
    let mut arguments = vec![
        format!("--python-version={major}.{minor}"),
        "--implementation=cp".to_owned(),
        format!("--abi=cp{major}{minor}"),
        "--abi=abi3".to_owned(),
        "--abi=none".to_owned(),
        "--platform=any".to_owned(),
    ];
    let (libc_major, libc_minor) = libc_version;
    if libc == "glibc" {
        let platforms = (OLDEST_GLIBC..=*libc_minor).rev();
        arguments
            .extend(platforms.map(|minor| format!("--platform=manylinux_{libc_major}_{minor}_{machine}")));
        arguments.push(format!("--platform=manylinux2014_{machine}"));
    } else {
        arguments
            .extend((1..=*libc_minor).rev().map(|minor| format!("--platform=musllinux_1_{minor}_{machine}")));
    }
    arguments.into_iter().map(OsString::from).collect()
}

fn program(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn finished(command: &mut Command, bound: Duration) -> Result<std::process::Output> {
    let fail = |why: String| Error::new(ErrorKind::Unavailable, "make template", why).with_hint(OTHER_WAY);
    match tokio::time::timeout(bound, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(cause)) => Err(fail(format!("pip can't be run: {cause}"))),
        Err(_) => Err(fail(format!("pip was not done after {} s", bound.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_python_gets_packages_of_its_own() {
        let python = Python {
            major: 3,
            minor: 12,
            machine: "aarch64".into(),
            libc: "glibc".into(),
            libc_version: (2, 36),
        };
        let said = for_python(&python);
        let has = |text: &str| said.iter().any(|argument| argument == text);
        assert!(has("--python-version=3.12") && has("--abi=cp312"));
        assert!(has("--platform=manylinux_2_17_aarch64") && has("--platform=manylinux_2_36_aarch64"));
        assert!(!has("--platform=manylinux_2_37_aarch64"));
        let musl = for_python(&Python { libc: "musl".into(), libc_version: (1, 2), ..python });
        assert!(musl.iter().any(|argument| argument == "--platform=musllinux_1_2_aarch64"));
    }

    #[test]
    fn a_folder_that_lacks_a_package_is_told_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["pip-1-py3-none-any.whl", "tornado-6.whl", "notes.txt", "jupyter_client-8.whl"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let error = in_folder(folder.path()).unwrap_err();
        assert!(error.message().contains("`ipykernel-….whl`"), "{error}");
        for name in ["ipykernel-6.whl", "pyzmq-1.whl"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(in_folder(folder.path()).unwrap().len(), 5);
        assert!(in_folder(&folder.path().join("none")).is_err());
    }
}
