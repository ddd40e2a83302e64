use sandbar::local::{LocalConfig, LocalProvider, PruneMode, PruneOptions};
use sandbar::{Error, ErrorKind};

use crate::args::{InitStoreArgs, PruneArgs, SystemAction, SystemArgs};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{
    Printer, disk_json, disk_table, print_bytes, print_json, prune_json, prune_text, store_json, store_text,
};
use crate::value::Size;

pub(crate) async fn system(url: &str, args: &SystemArgs, printer: Printer) -> Result<ExitStatus> {
    match &args.action {
        SystemAction::Df(_) => df(url, printer).await,
        SystemAction::InitStore(args) => init_store(url, args, printer).await,
    }
}

async fn df(url: &str, printer: Printer) -> Result<ExitStatus> {
    let provider = open(url, "system df")?;
    let usage = printer.progress("measuring", provider.disk_usage()).await?;
    if printer.json() {
        print_json(&disk_json(&usage))?;
    } else {
        print_bytes(disk_table(&usage).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

async fn init_store(url: &str, args: &InitStoreArgs, printer: Printer) -> Result<ExitStatus> {
    let provider = open(url, "system init-store")?;
    let Size(size) = args.size;
    let store = printer.progress("making the store", provider.init_store(size)).await?;
    if printer.json() {
        print_json(&store_json(&store))?;
    } else {
        print_bytes(store_text(&store).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn prune(url: &str, args: &PruneArgs, printer: Printer) -> Result<ExitStatus> {
    let provider = open(url, "prune")?;
    let mode = if args.force { PruneMode::Remove } else { PruneMode::DryRun };
    let options = PruneOptions::new().with_mode(mode);
    let report = printer.progress("looking", provider.prune(options)).await?;
    if printer.json() {
        print_json(&prune_json(&report, mode))?;
    } else {
        print_bytes(prune_text(&report, mode).as_bytes())?;
    }
    for problem in &report.problems {
        printer.warn(&format!("not looked at: {problem}"));
    }
    let failed = report.items.iter().any(|item| item.problem.is_some()) || !report.problems.is_empty();
    Ok(if failed { ExitStatus::Failed } else { ExitStatus::Done })
}

/// The backend of this machine, with the data folder that a provider URL names.
pub(super) fn open(url: &str, operation: &'static str) -> Result<LocalProvider> {
    let config = match url.split_once(':') {
        Some(("local", "")) => LocalConfig::new(),
        Some(("local", home)) => LocalConfig::new().with_home(home),
        _ => {
            let message = format!(
                "`{}` is not this machine, and `sandbar {operation}` looks at no other",
                url.escape_debug()
            );
            let error = Error::new(ErrorKind::InvalidInput, operation, message);
            return Err(Failure::usage(
                error.with_hint("leave `--provider` and `SANDBAR_URL` out, or make it `local`"),
            ));
        }
    };
    Ok(LocalProvider::open(config)?)
}
