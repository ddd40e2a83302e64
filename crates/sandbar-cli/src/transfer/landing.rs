use std::future::Future;

use sandbar::{EntryKind, Error, ErrorKind, FileEntry, GuestPath, Sandbox, StdinMode};

use crate::transfer::guest_program::{GuestProgram, ProgramOptions, bounded};
use crate::transfer::refusal::refusal;
use crate::transfer::{copy_error, temporary_name};
use crate::value::{Existing, Parents, Placement};

/// The copy's name in its temporary folder.
pub(super) const ROOT: &str = "copy";
/// The name in there of what was in the copy's place.
const OLD: &str = "old";

/// Where a copy into a sandbox shall go.
#[derive(Debug)]
pub(super) struct Destination<'a> {
    /// The source as somebody typed it, for messages.
    pub(super) source: String,
    /// The source's own name.
    pub(super) name: Vec<u8>,
    pub(super) top: Top,
    pub(super) target: &'a GuestPath,
    pub(super) placement: Placement,
    pub(super) existing: Existing,
    pub(super) parents: Parents,
}

/// What a tree's top is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Top {
    /// Or a link.
    File,
    Folder,
}

/// A copy on its way to its place in a sandbox: it grows in a temporary folder beside it, with the rights of the sandbox's default user.
pub(super) struct Landing<'a> {
    sandbox: &'a dyn Sandbox,
    destination: Destination<'a>,
    target: GuestPath,
    parent: GuestPath,
    temporary: GuestPath,
}

impl<'a> Landing<'a> {
    /// Looks whether the copy will have a place, and makes the temporary folder.
    pub(super) async fn start(sandbox: &'a dyn Sandbox, destination: Destination<'a>) -> Result<Self, Error> {
        let target = destination.find(sandbox).await?;
        let parent =
            target.parent().ok_or_else(|| copy_error(&destination.source, "a copy can't replace `/`"))?;
        let temporary = parent.join(temporary_name("copy")?)?;
        let landing = Self { sandbox, destination, target, parent, temporary };
        bounded(sandbox.files().make_dir(&landing.temporary)).await?.map_err(|e| landing.in_words(e))?;
        Ok(landing)
    }

    /// Starts the `tar` that unpacks a stream whose one top member is [`ROOT`].
    pub(super) async fn tar(&self) -> Result<GuestProgram, Error> {
        let options = ProgramOptions {
            name: "tar",
            // `-o`: the files belong to whoever unpacks them; `-p`: with the modes that they have.
            arguments: ["-x", "-o", "-p", "-f", "-"].map(Into::into).into(),
            folder: self.temporary.clone(),
            user: None,
            stdin: StdinMode::Open,
        };
        GuestProgram::start(self.sandbox, options).await.map_err(|error| match error.kind() {
            // The folder is one that the user can't enter.
            ErrorKind::InvalidInput => self.in_words(error),
            _ => error,
        })
    }

    /// Puts the copy in its place; what stood there, if it is to be replaced, goes.
    pub(super) async fn commit(self) -> Result<(), Error> {
        let placed = self.place().await;
        let removed = self.remove().await;
        placed?;
        removed
    }

    /// Removes all that was made. A failure to do so is told with `error`, whose cause it is not.
    pub(super) async fn abort<E>(self, error: E, left: impl FnOnce(E, String) -> E) -> E {
        match self.remove().await {
            Ok(()) => error,
            // With the sandbox everything in it is gone.
            Err(cause) if is_lost(&cause) => error,
            Err(_) => left(error, format!("`{}` in sandbox `{}`", self.temporary, self.sandbox.id())),
        }
    }

    async fn place(&self) -> Result<(), Error> {
        let (files, copy) = (self.sandbox.files(), self.temporary.join(ROOT)?);
        let replaces = self.destination.existing == Existing::Replace;
        if !replaces || bounded(files.stat(&self.target)).await??.is_none() {
            return self.told(files.rename(&copy, &self.target)).await;
        }
        let old = self.temporary.join(OLD)?;
        self.told(files.rename(&self.target, &old)).await?;
        let Err(error) = self.told(files.rename(&copy, &self.target)).await else { return Ok(()) };
        // Back with it. If that fails as well, the folder that holds it must not be removed.
        if self.told(files.rename(&old, &self.target)).await.is_ok() {
            return Err(error);
        }
        let kept = self.parent.join(temporary_name("replaced")?)?;
        self.told(files.rename(&old, &kept)).await?;
        Err(error.with_left_behind(format!("`{kept}`, which was `{}`", self.target)))
    }

    async fn told<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<(), Error> {
        bounded(work).await?.map(drop).map_err(|error| self.in_words(error))
    }

    async fn remove(&self) -> Result<(), Error> {
        bounded(self.sandbox.files().remove(&self.temporary)).await?.map(drop)
    }

    /// What these complain of is a name of ours; a sandbox that is gone speaks for itself.
    fn in_words(&self, error: Error) -> Error {
        if is_lost(&error) {
            return error;
        }
        refusal(&self.destination.source, self.destination.target, &self.parent, &error)
    }
}

impl Destination<'_> {
    /// Where the copy's top goes.
    async fn find(&self, sandbox: &dyn Sandbox) -> Result<GuestPath, Error> {
        let found = bounded(sandbox.files().stat(self.target)).await??;
        let is_folder = found.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory);
        let into = self.placement == Placement::Into || (is_folder && self.existing == Existing::Keep);
        if into {
            if !is_folder && self.parents == Parents::Require {
                return Err(no_folder(self.target, found.as_ref()));
            }
            let target = self.target.join(self.name.clone())?;
            let found = bounded(sandbox.files().stat(&target)).await??;
            self.check_replaceable(&target, found.as_ref())?;
            return Ok(target);
        }
        self.check_replaceable(self.target, found.as_ref())?;
        if let Some(parent) = self.target.parent().filter(|_| self.parents == Parents::Require) {
            match bounded(sandbox.files().stat(&parent)).await?? {
                Some(entry) if entry.kind == EntryKind::Directory => {}
                other => return Err(no_folder(&parent, other.as_ref())),
            }
        }
        Ok(self.target.clone())
    }

    /// Unless it is to be replaced, only a file or link gives way, and only to a file or link.
    fn check_replaceable(&self, target: &GuestPath, found: Option<&FileEntry>) -> Result<(), Error> {
        let Some(found) = found.filter(|_| self.existing == Existing::Keep) else { return Ok(()) };
        let why = match (self.top, found.kind) {
            (_, EntryKind::Directory) => "it exists, and folders are neither merged nor replaced",
            (Top::Folder, _) => "it exists and is no folder",
            (Top::File, EntryKind::Other) if found.link_target.is_none() => "it exists and is no file",
            (Top::File, _) => return Ok(()),
        };
        let message = format!("nothing can be copied to `{target}`: {why}");
        Err(Error::new(ErrorKind::AlreadyExists, "copy", message)
            .with_hint("name a destination that does not exist"))
    }
}

fn no_folder(path: &GuestPath, found: Option<&FileEntry>) -> Error {
    let why = if found.is_some() { "it is not a folder" } else { "it does not exist" };
    Error::new(ErrorKind::NotFound, "copy", format!("nothing can be copied into `{path}`: {why}"))
        .with_resource(format!("`{path}`"))
        .with_hint(format!("make the folder first: `sandbar exec ID -- mkdir -p {path}`"))
}

fn is_lost(error: &Error) -> bool {
    error.resource().is_some_and(|resource| resource.starts_with("sandbox "))
}
