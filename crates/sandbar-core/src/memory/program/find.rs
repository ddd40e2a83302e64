use std::sync::Arc;

use super::{ProgramContext, absolute};
use crate::ExitStatus;
use crate::memory::disk::Body;
use crate::memory::machine::Machine;
use crate::memory::process::{Launch, NotStarted};
use crate::memory::shell;

/// What the file of an emulated program starts with; its name follows.
pub(in crate::memory) const MAGIC: &[u8] = b"#!emulated ";

/// A program that was found and may be executed.
#[derive(Clone, Debug)]
pub(in crate::memory) enum Executable {
    /// One from the registry.
    Registered(String),
    /// A shell script, and where it was found.
    Script { text: Arc<Vec<u8>>, path: Vec<u8> },
}

impl Executable {
    /// Looks `launch`'s program up: as a path if it holds a `/`, else in its `PATH`.
    pub(in crate::memory) fn find(machine: &Machine, launch: &Launch) -> Result<Self, NotStarted> {
        let Some(program) = launch.argv.first() else { return Err(NotStarted::NotFound) };
        if program.contains(&b'/') {
            return Self::at(machine, &absolute(&launch.cwd, program));
        }
        let path = launch.env.get(b"PATH".as_slice()).map_or(b"/bin".as_slice(), Vec::as_slice);
        let mut refusal = NotStarted::NotFound;
        for folder in path.split(|b| *b == b':').filter(|folder| !folder.is_empty()) {
            match Self::at(machine, &[folder, program].join(&b'/')) {
                Err(NotStarted::NotFound) => {}
                Err(NotStarted::NotExecutable) => refusal = NotStarted::NotExecutable,
                found => return found,
            }
        }
        Err(refusal)
    }

    fn at(machine: &Machine, path: &[u8]) -> Result<Self, NotStarted> {
        let disk = machine.disk.lock();
        let node = disk.find(machine.root, path).map_err(|_| NotStarted::NotFound)?;
        let node = disk.node(node);
        let Body::File(content) = &node.body else { return Err(NotStarted::NotExecutable) };
        if node.mode & 0o111 == 0 {
            return Err(NotStarted::NotExecutable);
        }
        if let Some(name) = content.strip_prefix(MAGIC) {
            return Ok(Self::Registered(String::from_utf8_lossy(name).into_owned()));
        }
        if content.starts_with(b"#!/bin/sh") {
            return Ok(Self::Script { text: content.clone(), path: path.to_vec() });
        }
        Err(NotStarted::NotExecutable)
    }

    /// Runs it to its end.
    pub(in crate::memory) async fn run(self, context: ProgramContext) -> ExitStatus {
        match self {
            Self::Registered(name) => {
                let registry = context.machine.programs.clone();
                registry.run(&name, context).await
            }
            Self::Script { text, path } => shell::script(context, &text, path).await,
        }
    }
}
