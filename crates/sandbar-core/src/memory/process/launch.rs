use std::future::Future;
use std::sync::Arc;

use super::{Ended, Entry, Pid, Streams};
use crate::ExitStatus;
use crate::memory::machine::Machine;
use crate::memory::program::{Executable, ProgramContext};

/// A process to start.
#[derive(Debug)]
pub(in crate::memory) struct Launch {
    pub(in crate::memory) argv: Vec<Vec<u8>>,
    pub(in crate::memory) env: crate::memory::program::Env,
    pub(in crate::memory) cwd: Vec<u8>,
    pub(in crate::memory) user: &'static str,
    pub(in crate::memory) streams: Streams,
    /// The tree that it belongs to; its own if absent.
    pub(in crate::memory) tree: Option<Pid>,
    pub(in crate::memory) tag: Option<String>,
    pub(in crate::memory) asked_cwd: Option<String>,
}

/// A process that was started.
#[derive(Debug)]
pub(in crate::memory) struct Launched {
    pub(in crate::memory) pid: Pid,
    pub(in crate::memory) ended: Ended,
}

/// Why a program can't be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum NotStarted {
    /// There is no such program: a shell's 127.
    NotFound,
    /// It may not be executed: a shell's 126.
    NotExecutable,
}

impl NotStarted {
    pub(in crate::memory) fn code(self) -> i32 {
        match self {
            Self::NotFound => 127,
            Self::NotExecutable => 126,
        }
    }

    pub(in crate::memory) fn words(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::NotExecutable => "Permission denied",
        }
    }
}

impl Machine {
    /// Starts a program.
    pub(in crate::memory) fn launch(self: &Arc<Self>, launch: Launch) -> Result<Launched, NotStarted> {
        let program = Executable::find(self, &launch)?;
        Ok(self.launch_as(launch, |context| async move { program.run(context).await }))
    }

    /// Starts `body` as a process.
    pub(in crate::memory) fn launch_as<F>(
        self: &Arc<Self>,
        launch: Launch,
        body: impl FnOnce(ProgramContext) -> F,
    ) -> Launched
    where
        F: Future<Output = ExitStatus> + Send + 'static,
    {
        let pid = self.processes.next_pid();
        let Launch { argv, env, cwd, user, streams, tree, tag, asked_cwd } = launch;
        let tree = tree.unwrap_or(pid);
        let ended = self.processes.insert(pid, Entry::new(tree, argv.clone(), tag, asked_cwd));
        let context = ProgramContext { machine: self.clone(), pid, tree, argv, env, cwd, user, streams };
        let body = self.freezer.guard(body(context));
        let machine = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let status = body.await;
            if let Some(machine) = machine.upgrade() {
                machine.processes.finish(pid, status);
            }
        });
        self.processes.set_task(pid, task.abort_handle());
        Launched { pid, ended }
    }
}
