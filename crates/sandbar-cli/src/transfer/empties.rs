use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use sandbar::{Error, GuestPath, Sandbox, StdinMode, UserName};

use crate::transfer::copy_error;
use crate::transfer::guest_program::{GuestProgram, ProgramOptions};

/// Most files looked at by one `cat`, and most bytes of their names: well within what one program may be given.
const MAX_NAMES: usize = 1000;
const MAX_NAME_BYTES: usize = 64 << 10;

/// Files that `tar` took for empty. It believes a file's size, and what the kernel makes up as it is read, such as `/proc/self/status`, has
/// none: so whether they are empty is seen by reading them.
pub(super) struct Empties<'a> {
    sandbox: &'a dyn Sandbox,
    folder: GuestPath,
    user: Option<&'a UserName>,
    names: Vec<OsString>,
    name_bytes: usize,
}

impl<'a> Empties<'a> {
    /// For members of an archive made by `user` in `folder`.
    pub(super) fn new(sandbox: &'a dyn Sandbox, folder: GuestPath, user: Option<&'a UserName>) -> Self {
        Self { sandbox, folder, user, names: Vec::new(), name_bytes: 0 }
    }

    /// Takes one up; an error if one of those so far is not empty.
    pub(super) async fn add(&mut self, member: &[u8]) -> Result<(), Error> {
        // A leading `./`, so that no name is taken for an option.
        let name = if member.starts_with(b"./") { member.to_vec() } else { [b"./", member].concat() };
        self.name_bytes += name.len();
        self.names.push(OsStr::from_bytes(&name).to_owned());
        if self.names.len() >= MAX_NAMES || self.name_bytes >= MAX_NAME_BYTES {
            self.check().await
        } else {
            Ok(())
        }
    }

    /// An error if one of them is not empty, or can't be read.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        self.name_bytes = 0;
        let names = std::mem::take(&mut self.names);
        if names.is_empty() || !self.have_content(&names).await? {
            return Ok(());
        }
        // Which one it is, by halves.
        let mut suspects = names.as_slice();
        while suspects.len() > 1 {
            let (first, rest) = suspects.split_at(suspects.len() / 2);
            suspects = if self.have_content(first).await? { first } else { rest };
        }
        let name = suspects.first().map(|name| name.as_bytes()).unwrap_or_default();
        let path = self.folder.join(name)?;
        Err(copy_error(&format!("`{path}`"), "it says that it is empty, and has content")
            .with_hint(format!("take a copy out instead: let the command do `cat {path} > FILE`")))
    }

    async fn have_content(&self, names: &[OsString]) -> Result<bool, Error> {
        // Arguments are text; names that are none come by standard input.
        let are_text = names.iter().all(|name| name.to_str().is_some());
        let options = ProgramOptions {
            name: if are_text { "cat" } else { "xargs" },
            arguments: if are_text { names.to_vec() } else { ["-0", "cat"].map(Into::into).into() },
            folder: self.folder.clone(),
            user: self.user.cloned(),
            stdin: if are_text { StdinMode::Null } else { StdinMode::Open },
        };
        let mut cat = GuestProgram::start(self.sandbox, options).await?;
        if !are_text {
            cat.write_names(names).await?;
        }
        while let Some(bytes) = cat.read().await? {
            if !bytes.is_empty() {
                cat.kill().await;
                return Ok(true);
            }
        }
        cat.end("files that seem empty").await?;
        Ok(false)
    }
}
