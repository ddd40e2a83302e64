use futures::StreamExt as _;
use sandbar::{BuildLog, CommitOptions, Error, ErrorKind, ProviderExt as _, SandboxProvider, Template};
use serde_json::json;

use crate::args::TemplateCommitArgs;
use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_json, print_json_line, print_line, tell, template_json};
use crate::settings::BuildSettings;
use crate::signals::Signals;

pub(crate) async fn template_build(
    provider: &dyn SandboxProvider,
    settings: BuildSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let BuildSettings { spec, _prepared: prepared } = settings;
    let mut signals = Signals::catch()?;
    let work = async {
        let mut words = provider.require_builds()?.build(spec).await?;
        while let Some(word) = words.next().await {
            match word? {
                BuildLog::Step { number, of, text, is_cached } if printer.json() => {
                    let step = json!({"number": number, "of": of, "text": text, "cached": is_cached});
                    print_json_line(&json!({"version": 1, "step": step}))?;
                }
                BuildLog::Step { number, of, text, is_cached } => {
                    tell(&format!("[{number}/{of}] {text}{}", if is_cached { " (known)" } else { "" }));
                }
                BuildLog::Line(line) if printer.json() => {
                    print_json_line(&json!({"version": 1, "line": line}))?;
                }
                BuildLog::Line(line) => tell(&line),
                BuildLog::Done(template) => return Ok::<Template, Failure>(template),
                _ => {}
            }
        }
        let why = "the build ended without its last word";
        Err(Error::new(ErrorKind::Protocol, "build", why).into())
    };
    let built = or_interrupt(&mut signals, work).await;
    drop(prepared);
    let template = built?;
    if printer.json() {
        print_json_line(&template_json(&template))?;
    } else {
        print_line(template.id.as_str())?;
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn template_commit(
    provider: &dyn SandboxProvider,
    args: TemplateCommitArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let TemplateCommitArgs { sandbox, id, capture_paths, label } = args;
    let sandbox = require(provider, &sandbox, "commit").await.map_err(absent)?;
    let options = CommitOptions { sandbox: sandbox.id().clone(), template: id, capture_paths, label };
    let mut signals = Signals::catch()?;
    let work = async { provider.require_templates()?.commit(options).await };
    let template = printer.progress("copying its files", or_interrupt(&mut signals, work)).await?;
    if printer.json() {
        print_json(&template_json(&template))?;
    } else {
        print_line(template.id.as_str())?;
    }
    Ok(ExitStatus::Done)
}
