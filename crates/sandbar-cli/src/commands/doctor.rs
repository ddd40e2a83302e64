use sandbar::local::{Doctor, LocalConfig};
use sandbar::{Error, ErrorKind};

use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{DoctorJson, Printer, doctor_text, print_bytes, print_json};

/// What a provider URL may be here: the backend of this machine, with the data folder that it names.
pub(crate) fn doctor(url: &str, printer: Printer) -> Result<ExitStatus> {
    let config = config(url)?;
    let report = Doctor::new(&config)?.examine();
    if printer.json() {
        print_json(&DoctorJson::from(&report))?;
    } else {
        print_bytes(doctor_text(&report).as_bytes())?;
    }
    Ok(match report.is_fit() {
        Some(true) => ExitStatus::Done,
        Some(false) => ExitStatus::Unfit,
        None => ExitStatus::Failed,
    })
}

fn config(url: &str) -> Result<LocalConfig> {
    match url.split_once(':') {
        Some(("local", "")) => Ok(LocalConfig::new()),
        Some(("local", home)) => Ok(LocalConfig::new().with_home(home)),
        _ => {
            let message =
                format!("`{}` is not this machine, and `doctor` looks at no other", url.escape_debug());
            let error = Error::new(ErrorKind::InvalidInput, "doctor", message);
            Err(Failure::usage(
                error.with_hint("leave `--provider` and `SANDBAR_URL` out, or make it `local`"),
            ))
        }
    }
}
