use sandbar::{Error, GuestPath};

use crate::args::CpArgs;
use crate::failure::{Failure, Result};
use crate::settings::{absolute, destination};
use crate::value::{CopyBetween, CopyIn, CopyOut, Existing, Parents, Place};

/// `cp`.
#[derive(Debug)]
pub(crate) enum CpSettings {
    /// Into the sandbox `to`.
    In { to: String, copy: CopyIn },
    /// Out of the sandbox `from`.
    Out { from: String, copy: CopyOut },
    /// From one sandbox to another or the same.
    Between { from: String, to: String, copy: CopyBetween },
}

impl CpSettings {
    pub(crate) fn resolve(args: CpArgs) -> Result<Self> {
        let CpArgs { source, target, replace } = args;
        let existing = if replace { Existing::Replace } else { Existing::Keep };
        match (source, target) {
            (Place::Host { path, .. }, Place::Guest { id, path: target, placement }) => {
                let source = absolute(&path)?;
                if let Err(error) = source.metadata() {
                    return Err(usage(format!("`{}` can't be copied: {error}", path.display())));
                }
                let copy = CopyIn { source, target, placement, existing, parents: Parents::Require };
                Ok(Self::In { to: id, copy })
            }
            (Place::Guest { id, path: source, .. }, Place::Host { path: target, placement }) => {
                check_name(&source)?;
                let copy = CopyOut { source, target, placement, existing };
                Ok(Self::Out { from: id, copy: destination::present(copy)? })
            }
            (
                Place::Guest { id: from, path: source, .. },
                Place::Guest { id: to, path: target, placement },
            ) => {
                check_name(&source)?;
                let parents = Parents::Require;
                let copy = CopyBetween { source, target, placement, existing, parents };
                Ok(Self::Between { from, to, copy })
            }
            (Place::Host { .. }, Place::Host { .. }) => {
                let error = Error::invalid("parse cp", "both paths are of this machine");
                Err(Failure::usage(
                    error.with_hint("write ID:/PATH for one in a sandbox; `cp` copies on this machine"),
                ))
            }
        }
    }
}

fn check_name(source: &GuestPath) -> Result<()> {
    if source.is_root() {
        return Err(usage("`/` can't be copied as a whole: name what you need of it".to_owned()));
    }
    Ok(())
}

fn usage(message: String) -> Failure {
    Failure::usage(Error::invalid("parse cp", message))
}
