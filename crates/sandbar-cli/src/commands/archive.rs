use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, stream};
use sandbar::{Error, ErrorKind, ImportReport, Sandbox, SandboxExt, SandboxProvider};
use serde_json::json;

use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_json};
use crate::signals::Signals;
use crate::stdio::{Output, Source, Stream};
use crate::transfer::Meter;
use crate::value::GuestPlace;

/// Version of the JSON form.
const FORM: u32 = 1;

pub(crate) async fn import(
    provider: &dyn SandboxProvider,
    to: &GuestPlace,
    printer: Printer,
) -> Result<ExitStatus> {
    if std::io::stdin().is_terminal() {
        let error = Error::invalid("import", "standard input is a terminal: expected a tar archive");
        return Err(Failure::usage(
            error.with_hint("write `sandbar import ID:/PATH < FILE`, or put a pipe before it"),
        ));
    }
    let mut signals = Signals::catch()?;
    let started = Instant::now();
    let meter = Meter::default();
    let work = async {
        let sandbox = find(provider, to, "import").await?;
        let source = Source::stdin().map_err(Failure::input)?;
        let counted = meter.clone();
        let tar = stream::unfold(Some(source), move |source| {
            let counted = counted.clone();
            async move {
                let source = source?;
                match source.read().await {
                    Ok(bytes) if bytes.is_empty() => None,
                    Ok(bytes) => {
                        counted.bytes(bytes.len());
                        Some((Ok(bytes), Some(source)))
                    }
                    Err(error) => {
                        let text = format!("standard input can't be read: {error}");
                        Some((Err(Error::new(ErrorKind::Unexpected, "import", text)), None))
                    }
                }
            }
        });
        Ok::<_, Failure>(sandbox.require_archive()?.import(&to.path, tar.boxed()).await?)
    };
    let report = printer.progress_of("importing", &meter, or_interrupt(&mut signals, work)).await?;
    if printer.json() {
        let ImportReport { entries, bytes } = report;
        let duration = started.elapsed().as_secs_f64();
        print_json(&json!({ "version": FORM, "entries": entries, "bytes": bytes, "duration": duration }))?;
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn export(
    provider: &dyn SandboxProvider,
    from: &GuestPlace,
    printer: Printer,
) -> Result<ExitStatus> {
    if std::io::stdout().is_terminal() {
        let error = Error::invalid("export", "standard output is a terminal, which an archive is not for");
        return Err(Failure::usage(
            error.with_hint("write `sandbar export ID:/PATH > FILE`, or put a pipe after it"),
        ));
    }
    let mut signals = Signals::catch()?;
    let meter = Meter::default();
    let work = async {
        let sandbox = find(provider, from, "export").await?;
        let mut tar = sandbox.require_archive()?.export(&from.path).await?;
        let mut output = Output::new(Stream::Stdout);
        while let Some(bytes) = tar.next().await {
            let bytes = bytes?;
            meter.bytes(bytes.len());
            output.write(bytes).await.map_err(Failure::output)?;
        }
        output.finish().await.map_err(Failure::output)
    };
    printer.progress_of("exporting", &meter, or_interrupt(&mut signals, work)).await?;
    Ok(ExitStatus::Done)
}

async fn find(
    provider: &dyn SandboxProvider,
    place: &GuestPlace,
    operation: &'static str,
) -> Result<Arc<dyn Sandbox>> {
    require(provider, &place.id, operation).await.map_err(absent)
}
