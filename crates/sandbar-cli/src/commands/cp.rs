use std::pin::pin;
use std::time::Instant;

use sandbar::SandboxProvider;
use serde_json::json;

use crate::commands::interrupt::interrupted;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, print_json};
use crate::settings::CpSettings;
use crate::signals::Signals;
use crate::transfer::{Meter, copy_between, copy_in, copy_out};

/// Version of the JSON form.
const FORM: u32 = 1;

pub(crate) async fn cp(
    provider: &dyn SandboxProvider,
    settings: CpSettings,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let mut stop = pin!(async { interrupted(signals.next().await) });
    let started = Instant::now();
    let meter = Meter::default();
    let find = async |id: &str| require(provider, id, "copy").await.map_err(absent);
    let work = async {
        match settings {
            CpSettings::In { to, copy } => copy_in(&*find(&to).await?, &copy, &meter, stop.as_mut()).await,
            CpSettings::Out { from, copy } => {
                copy_out(&*find(&from).await?, &copy, None, &meter, stop.as_mut()).await
            }
            CpSettings::Between { from, to, copy } => {
                let (from, to) = (find(&from).await?, find(&to).await?);
                copy_between(&*from, &*to, &copy, &meter, stop.as_mut()).await
            }
        }
    };
    printer.progress_of("copying", &meter, work).await?;
    if printer.json() {
        print_json(&json!({
            "version": FORM,
            "files": meter.files_so_far(),
            "bytes": meter.bytes_so_far(),
            "duration": started.elapsed().as_secs_f64(),
        }))?;
    }
    Ok(ExitStatus::Done)
}
