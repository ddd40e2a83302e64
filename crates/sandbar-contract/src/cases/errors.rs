use std::error::Error as _;
use std::fmt::Write as _;

use sandbar_core::{Command, EnvVars, Error, ErrorKind, FilesExt, ProviderExt, RunOptions, SandboxExt};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, expect_error};

group!("errors";
    name_their_operation, are_lower_case, show_no_env_value, show_no_argument_of_a_command, name_their_backend,
    of_a_gone_sandbox_name_it, unsupported_names_its_feature,
);

/// A value that must not turn up where it has no business.
const SECRET: &str = "s3cr3t-SENTINEL-value";

/// Errors of several kinds.
async fn several(bed: &Bed<'_>) -> Checked<Vec<Error>> {
    let sandbox = bed.shared().await?;
    let missing = at("/no/such/path")?;
    let mut errors = vec![
        expect_error(sandbox.files().read(&missing).await, &[ErrorKind::NotFound], "read")?,
        expect_error(sandbox.files().list(&missing).await, &[ErrorKind::NotFound], "list")?,
        expect_error(bed.provider().require(&bed.absent_id()?).await, &[ErrorKind::NotFound], "require")?,
    ];
    let options = RunOptions::default().with_cwd(missing);
    let ran = sandbox.commands().run_opts(&Command::new("true"), options).await;
    errors.push(expect_error(ran, &[ErrorKind::InvalidInput], "run")?);
    Ok(errors)
}

async fn name_their_operation(bed: &Bed<'_>) -> Checked {
    for error in several(bed).await? {
        ensure!(!error.operation().is_empty(), "no operation: {error}");
        ensure!(
            error.to_string().starts_with(error.operation()),
            "the operation does not come first: {error}"
        );
    }
    Ok(())
}

async fn are_lower_case(bed: &Bed<'_>) -> Checked {
    for error in several(bed).await? {
        let first = error.message().chars().next();
        ensure!(first.is_some_and(|first| !first.is_uppercase()), "starts with a capital: {error}");
        ensure!(!error.message().ends_with('.'), "ends with a full stop: {error}");
    }
    Ok(())
}

/// All that an error shows.
fn shown(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {:?}", error.hint());
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, " {cause} {cause:?}");
        source = cause.source();
    }
    text
}

async fn show_no_env_value(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let env = EnvVars::new().with("KIT_SECRET", SECRET)?;
    let options = RunOptions::default().with_env(env).with_cwd(at("/no/such/folder")?);
    let ran = sandbox.commands().run_opts(&Command::new("true"), options).await;
    let error = expect_error(ran, &[ErrorKind::InvalidInput], "the command")?;
    ensure!(!shown(&error).contains(SECRET), "the error shows a variable's value");
    let refused = EnvVars::new().with("BAD NAME", SECRET);
    let error = expect_error(refused, &[ErrorKind::InvalidInput], "a bad variable")?;
    ensure!(!shown(&error).contains(SECRET), "the error of a bad variable shows its value");
    Ok(())
}

async fn show_no_argument_of_a_command(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let command = Command::new("true").arg(SECRET);
    ensure!(!format!("{command:?}").contains(SECRET), "a command's Debug shows an argument");
    let options = RunOptions::default().with_cwd(at("/no/such/folder")?);
    let ran = sandbox.commands().run_opts(&command, options).await;
    let error = expect_error(ran, &[ErrorKind::InvalidInput], "the command")?;
    ensure!(!shown(&error).contains(SECRET), "the error shows an argument");
    Ok(())
}

async fn name_their_backend(bed: &Bed<'_>) -> Checked {
    for error in several(bed).await? {
        let named = error.backend();
        ensure!(named.is_none_or(|named| named == bed.provider().name()), "another backend: {named:?}");
    }
    Ok(())
}

async fn of_a_gone_sandbox_name_it(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.fresh().await?;
    bed.provider().destroy(sandbox.id()).await?;
    let error = expect_error(sandbox.record().await, &[ErrorKind::NotFound], "record")?;
    let text = format!("{error} {:?}", error.resource());
    ensure!(text.contains(sandbox.id().as_str()), "the error does not name the sandbox: {error}");
    Ok(())
}

async fn unsupported_names_its_feature(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let refusals =
        [sandbox.require_archive().err(), sandbox.require_guest().err(), sandbox.require_ports().err()];
    for error in refusals.into_iter().flatten() {
        ensure_eq!(error.kind(), ErrorKind::Unsupported, "kind");
        ensure!(error.feature().is_some(), "no feature named: {error}");
    }
    Ok(())
}
