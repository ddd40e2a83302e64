use jiff::Timestamp;
use sandbar::{ErrorKind, ProcessInfo, ProcessOrigin, SandboxExt, SandboxProvider};

use crate::args::PsArgs;
use crate::commands::resolve::require_or_absent;
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_bytes, print_json, process_table, processes_json};

pub(crate) async fn ps(provider: &dyn SandboxProvider, args: PsArgs, printer: Printer) -> Result<ExitStatus> {
    let PsArgs { id, started } = args;
    let look = async {
        let sandbox = require_or_absent(provider, &id, "list processes").await?;
        let part = sandbox.require_processes()?;
        let listed = match part.list_all().await {
            // Fewer are known, and that is told.
            Err(error) if error.kind() == ErrorKind::Unsupported => (part.list().await?, Complete::No),
            listed => (listed?, Complete::Yes),
        };
        Ok::<_, Failure>(listed)
    };
    let (mut processes, complete): (Vec<ProcessInfo>, _) =
        printer.progress("listing processes", look).await?;
    if started {
        processes.retain(|process| process.origin == ProcessOrigin::Contract);
    }
    if printer.json() {
        print_json(&processes_json(&processes, complete == Complete::Yes))?;
    } else {
        print_bytes(process_table(&processes, Timestamp::now()).as_bytes())?;
        if complete == Complete::No && !started {
            printer.warn("only processes that were started from outside are known here");
        }
    }
    Ok(ExitStatus::Done)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Complete {
    Yes,
    No,
}
