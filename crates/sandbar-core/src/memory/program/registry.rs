use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{ProgramContext, basic, disk, stream, test};
use crate::ExitStatus;
use crate::memory::process::Broken;
use crate::memory::shell;

/// An emulated program.
///
/// It is started as any other: by its name through `PATH`, by its path `/bin/<name>`, or from a shell script.
#[async_trait]
pub trait Program: Send + Sync {
    /// Runs to the end and answers the exit code.
    async fn run(&self, context: ProgramContext) -> i32;
}

/// The signal of a writer whose reader went away.
const SIGPIPE: i32 = 13;

/// The built-in set, by name.
const BUILT_IN: &[&str] = &[
    "[", "cat", "chmod", "cp", "echo", "env", "false", "head", "id", "kill", "ln", "ls", "mkdir", "mv",
    "nohup", "printf", "pwd", "readlink", "rm", "rmdir", "seq", "setsid", "sh", "sleep", "tail", "tee",
    "test", "touch", "tr", "true", "wc", "whoami", "yes",
];

/// The programs of a provider, by name.
#[derive(Clone, Default)]
pub(in crate::memory) struct Registry(BTreeMap<String, Arc<dyn Program>>);

impl Registry {
    pub(in crate::memory) fn add(&mut self, name: String, program: Arc<dyn Program>) {
        self.0.insert(name, program);
    }

    pub(in crate::memory) fn names(&self) -> impl Iterator<Item = &str> {
        BUILT_IN.iter().copied().chain(self.0.keys().map(String::as_str))
    }

    /// Runs the program called `name`, the caller's own before a built-in one.
    pub(super) async fn run(&self, name: &str, context: ProgramContext) -> ExitStatus {
        if let Some(program) = self.0.get(name) {
            return ExitStatus::Code(program.run(context).await);
        }
        let exit = match name {
            "sh" => return shell::main(context).await,
            "env" => return basic::env(context).await,
            "nohup" | "setsid" => return basic::prefix(context).await,
            "sleep" => basic::sleep(&context).await,
            "echo" => basic::echo(&context).await,
            "printf" => basic::printf(&context).await,
            "pwd" => basic::pwd(&context).await,
            "true" => Ok(0),
            "false" => Ok(1),
            "id" | "whoami" => basic::id(&context).await,
            "kill" => basic::kill(&context).await,
            "seq" => basic::seq(&context).await,
            "test" | "[" => test::main(&context).await,
            "cat" => stream::cat(&context).await,
            "head" => stream::head(&context).await,
            "tail" => stream::tail(&context).await,
            "tee" => stream::tee(&context).await,
            "tr" => stream::tr(&context).await,
            "wc" => stream::wc(&context).await,
            "yes" => stream::yes(&context).await,
            "chmod" => disk::chmod(&context).await,
            "cp" => disk::cp(&context).await,
            "ln" => disk::ln(&context).await,
            "ls" => disk::ls(&context).await,
            "mkdir" => disk::mkdir(&context).await,
            "mv" => disk::mv(&context).await,
            "readlink" => disk::readlink(&context).await,
            "rm" | "rmdir" => disk::rm(&context).await,
            "touch" => disk::touch(&context).await,
            _ => context.complain("no such program is registered", 127).await,
        };
        match exit {
            Ok(code) => ExitStatus::Code(code & 0xff),
            Err(Broken) => ExitStatus::Signal(SIGPIPE),
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
