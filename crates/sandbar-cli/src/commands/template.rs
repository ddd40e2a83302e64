use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::path::Path;

use jiff::Timestamp;
use sandbar::local::{FolderOwners, ImportOptions, PullOptions, TemplateSource};
use sandbar::{Error, ErrorKind, ProviderExt as _, SandboxProvider, TemplateId};

use super::system::open;
use crate::args::{OwnerArg, TemplateExportArgs, TemplateImportArgs, TemplateLsArgs, TemplatePullArgs};
use crate::commands::each::{REMOVE, each};
use crate::commands::interrupt::or_interrupt;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{
    Printer, details_json, details_text, print_bytes, print_json, print_line, template_json, template_table,
    template_text, templates_json,
};
use crate::signals::Signals;

pub(crate) async fn template_import(
    url: &str,
    args: TemplateImportArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    const OPERATION: &str = "template import";
    let TemplateImportArgs { id, source, label, start, owner, image } = args;
    let provider = open(url, OPERATION)?;
    let source = source_of(&source)?;
    let mut options = ImportOptions::new().with_start(start);
    options.owners = owner.map(|owner| match owner {
        OwnerArg::Root => FolderOwners::Root,
        OwnerArg::User => FolderOwners::User,
        OwnerArg::Keep => FolderOwners::Keep,
    });
    options.label = label;
    options.reference = image;
    let mut signals = Signals::catch()?;
    let work = async { Ok::<_, Failure>(provider.import_template(&id, source, options).await?) };
    let template = printer.progress(&format!("importing {id}"), or_interrupt(&mut signals, work)).await?;
    if printer.json() {
        print_json(&template_json(&template))?;
    } else {
        print_line(template.id.as_str())?;
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn template_pull(
    url: &str,
    args: TemplatePullArgs,
    login: Option<(String, String)>,
    printer: Printer,
) -> Result<ExitStatus> {
    let TemplatePullArgs { id, reference, label, start } = args;
    let provider = open(url, "template pull")?;
    let mut options = ImportOptions::new().with_start(start);
    options.label = label;
    let pull = match login {
        Some((user, password)) => PullOptions::new().with_login(user, password),
        None => PullOptions::new(),
    };
    let mut signals = Signals::catch()?;
    let work = async { Ok::<_, Failure>(provider.pull_template(&id, &reference, pull, options).await?) };
    let template = printer.progress(&format!("pulling {id}"), or_interrupt(&mut signals, work)).await?;
    if printer.json() {
        print_json(&template_json(&template))?;
    } else {
        print_line(template.id.as_str())?;
    }
    Ok(ExitStatus::Done)
}

fn source_of(source: &Path) -> Result<TemplateSource> {
    if source.as_os_str() == "-" {
        let stdin = std::io::stdin();
        if stdin.is_terminal() {
            let error =
                Error::invalid("template import", "standard input is a terminal: expected an archive");
            return Err(Failure::usage(error.with_hint("put a pipe before it, or name a file")));
        }
        let stream = stdin.as_fd().try_clone_to_owned().map_err(Failure::input)?;
        return Ok(TemplateSource::Stream(stream));
    }
    Ok(if source.is_dir() {
        TemplateSource::Folder(source.to_owned())
    } else {
        TemplateSource::File(source.to_owned())
    })
}

pub(crate) async fn template_export(
    url: &str,
    args: TemplateExportArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    const OPERATION: &str = "template export";
    if printer.json() {
        let error = Error::invalid(OPERATION, "an archive is no JSON");
        return Err(Failure::usage(error.with_hint("leave `--json` out")));
    }
    let stdout = std::io::stdout();
    if stdout.is_terminal() {
        let error = Error::invalid(OPERATION, "standard output is a terminal, which an archive is not for");
        return Err(Failure::usage(error.with_hint("put a pipe or `> FILE` after it")));
    }
    let provider = open(url, OPERATION)?;
    let archive = stdout.as_fd().try_clone_to_owned().map_err(Failure::output)?;
    let mut signals = Signals::catch()?;
    let work = async {
        provider.export_template(&args.id, archive).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::new(ExitStatus::Absent, error),
            _ => error.into(),
        })
    };
    printer.progress(&format!("exporting {}", args.id), or_interrupt(&mut signals, work)).await?;
    Ok(ExitStatus::Done)
}

pub(crate) async fn template_list(
    provider: &dyn SandboxProvider,
    args: &TemplateLsArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut templates = provider.require_templates()?.list(&args.prefix).await?;
    templates.sort_by(|one, other| one.id.cmp(&other.id));
    if printer.json() {
        print_json(&templates_json(&templates))?;
    } else {
        print_bytes(template_table(&templates, Timestamp::now()).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

/// What the contract has of a template, and of one of this machine what it is made of, too.
pub(crate) async fn template_show(
    provider: &dyn SandboxProvider,
    url: &str,
    id: &TemplateId,
    printer: Printer,
) -> Result<ExitStatus> {
    const OPERATION: &str = "show template";
    let gone = || Failure::new(ExitStatus::Absent, absent(OPERATION, id));
    let template = provider.require_templates()?.get(id).await?.ok_or_else(gone)?;
    let details = match url.split_once(':') {
        Some(("local", _)) => Some(open(url, OPERATION)?.describe_template(id).await?.ok_or_else(gone)?),
        _ => None,
    };
    match details {
        None if printer.json() => print_json(&template_json(&template))?,
        None => print_bytes(template_text(&template, Timestamp::now()).as_bytes())?,
        Some(details) if printer.json() => print_json(&details_json(&details))?,
        Some(details) => print_bytes(details_text(&details, Timestamp::now()).as_bytes())?,
    }
    Ok(ExitStatus::Done)
}

/// Removes each; one that is absent or in use does not keep the others.
pub(crate) async fn template_remove(
    provider: &dyn SandboxProvider,
    ids: &[TemplateId],
    printer: Printer,
) -> Result<ExitStatus> {
    let templates = provider.require_templates()?;
    let act = async |id: &TemplateId| Ok(templates.remove(id).await?.then(|| id.clone()));
    each(REMOVE, ids, act, |id| absent("remove template", id), printer).await
}

fn absent(operation: &'static str, id: &TemplateId) -> Error {
    Error::not_found(operation, format!("template `{id}`"))
        .with_hint("`sandbar template ls` shows what exists")
}
