use std::path::Path;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbar_core::Result;

use super::guard::Guard;
use super::pipes::Pipes;
use super::prepare::Prepared;
use super::protocol::{CreateOrders, OLDEST, Orders, Report, Task, VERSION};
use super::{adopt, create, log, prepare, start};
use crate::doctor;
use crate::error::{ErrorForm, fail, io_error};
use crate::home::Home;

/// Descriptors that a shim can have use for: both ends of all connections into the sandbox and out of it, listeners, and
/// answers full of descriptors, with room to spare.
const DESCRIPTORS: u64 = 32_768;

/// `main` of the shim, for an executable that was started under the name `sandbar-shim`. Reads its orders from standard input, reports on
/// standard output, and ends with the sandbox.
pub fn shim_main() -> ! {
    // Before anything is opened: what a caller leaves open (a lock, a pipe, a file with a secret) must not live as long as the sandbox.
    let closed = sandbar_engine::close_inherited();
    // From here on it is nobody's child to speak of: the signals of a terminal end its caller, never the sandbox of another.
    let _ = rustix::process::setsid();
    let _ = std::env::set_current_dir("/");
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    allow_descriptors();
    // While there are descriptors: who guards a sandbox names its processes by it. What goes wrong here goes wrong again where it matters.
    let _ = crate::home::boot_id();
    let code = match Pipes::take() {
        Ok(mut pipes) => match closed {
            Ok(()) => run(pipes),
            Err(cause) => {
                let error = io_error("create", "closing what the shim inherited", cause);
                pipes.report(&Report::Failed(ErrorForm::from(&error)));
                1
            }
        },
        Err(cause) => {
            log::say(&cause);
            1
        }
    };
    std::process::exit(code)
}

/// Raises the limit on open descriptors as far as it is of use. Without that there is room for fewer connections.
fn allow_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(DESCRIPTORS, |maximum| maximum.min(DESCRIPTORS));
    if current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

fn run(mut pipes: Pipes) -> i32 {
    let started = match pipes.read_orders().and_then(|orders| carry_out(orders, &mut pipes)) {
        Ok(Started::Unwanted) => return 0,
        Ok(Started::Elsewhere) => None,
        Ok(Started::Here(guard)) => Some(guard),
        Err(error) => {
            pipes.report(&Report::Failed(ErrorForm::from(&error)));
            return 1;
        }
    };
    let Some(guard) = started else {
        pipes.report(&Report::Guarded);
        return 0;
    };
    match guard.run(pipes) {
        Ok(()) => 0,
        Err(error) => {
            // Nobody reads an answer any more; the log is in the sandbox' folder, as long as there is one.
            log::say(&error);
            1
        }
    }
}

/// What came of the orders.
enum Started {
    Here(Guard),
    /// Another shim guards the sandbox already.
    Elsewhere,
    /// What was prepared is not wanted any more.
    Unwanted,
}

/// Does what has to be done before there is a runtime.
fn carry_out(orders: Orders, pipes: &mut Pipes) -> Result<Started> {
    let orders = checked(orders)?;
    match orders.task {
        Task::Create(wanted) => make(&orders.home, &wanted, pipes, None),
        Task::Prepare(shape) => {
            // What goes wrong is told when it is asked for.
            let prepared = Home::ensure(&orders.home)
                .and_then(|home| prepare::prepare(home, *shape, pipes, prepare::Gateway::IfPossible))
                .ok();
            match pipes.read_later_orders()?.map(checked).transpose()?.map(|later| (later.home, later.task)) {
                Some((home, Task::Create(wanted))) => make(&home, &wanted, pipes, prepared),
                Some(_) => Err(fail(
                    sandbar_core::ErrorKind::Protocol,
                    "create",
                    "a shim that is prepared takes orders to create, and no others",
                )),
                None => Ok(Started::Unwanted),
            }
        }
        Task::Start(id) => {
            Ok(start::start(&orders.home, &id, pipes)?.map_or(Started::Elsewhere, Started::Here))
        }
        Task::Adopt(id) => Ok(adopt::adopt(&orders.home, &id)?.map_or(Started::Elsewhere, Started::Here)),
    }
}

/// Makes the sandbox; an error that a condition of the machine explains is told in that condition's words.
fn make(home: &Path, wanted: &CreateOrders, pipes: &Pipes, prepared: Option<Prepared>) -> Result<Started> {
    let made = Home::ensure(home).and_then(|home| create::create(home, wanted, pipes, prepared));
    made.map(Started::Here).map_err(|error| {
        let helper = std::env::current_exe().ok();
        doctor::told(error, home, helper.as_deref())
    })
}

fn checked(orders: Orders) -> Result<Orders> {
    if !(OLDEST..=VERSION).contains(&orders.v) {
        let message = format!(
            "the library (version {}) speaks version {} of the shim's protocol, the executable (version {}) speaks {OLDEST} to {VERSION}",
            orders.library,
            orders.v,
            env!("CARGO_PKG_VERSION")
        );
        let error = fail(sandbar_core::ErrorKind::Config, "create", message);
        let facts = doctor::Facts::read(&orders.home, None);
        return Err(doctor::explain(&error, &doctor::place::HELPER_VERSION, &facts));
    }
    Ok(orders)
}
