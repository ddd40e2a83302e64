use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a template comes from.
#[derive(Debug)]
#[non_exhaustive]
pub enum TemplateSource {
    /// A file: a tar archive of a root file system, of an OCI image layout, or what `docker save` writes; plain, gzip or zstd.
    File(PathBuf),
    /// The same as a stream.
    Stream(OwnedFd),
    /// A folder: a root file system, or an OCI image layout.
    Folder(PathBuf),
}

/// Whose the files of a folder become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FolderOwners {
    /// All root's, as in an installed system.
    #[default]
    Root,
    /// All the sandbox' user's.
    User,
    /// Those that they are, by number. For an ordinary user, whose files are all its own, those are root's.
    Keep,
}

/// How far an import is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportProgress {
    /// What is being done, for people.
    pub step: String,
    /// Files so far in this step.
    pub entries: u64,
    /// Bytes so far in this step.
    pub bytes: u64,
}

/// Is told how far an import is.
pub type ImportListener = Arc<dyn Fn(ImportProgress) + Send + Sync>;

/// How to import a template.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ImportOptions {
    /// A word on it.
    pub label: Option<String>,
    /// Where it came from, for people; absent is the file's or folder's name.
    pub origin: Option<String>,
    /// Whether the image's own command becomes the main command of sandboxes that are given none.
    pub start: bool,
    /// Whose the files of a folder become; absent is root's. Of anything else it is refused.
    pub owners: Option<FolderOwners>,
    /// Which image, by its name and tag, or by its name alone where that has one tag. Where there is no image, it is refused.
    pub reference: Option<String>,
    /// Is told how far it is.
    pub progress: Option<ImportListener>,
}

impl ImportOptions {
    /// Without a label, and without the image's command.
    pub fn new() -> Self {
        Self::default()
    }

    /// A word on it.
    pub fn with_label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Where it came from, for people.
    pub fn with_origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// Whether the image's own command becomes the main command of sandboxes that are given none.
    pub fn with_start(mut self, start: bool) -> Self {
        self.start = start;
        self
    }

    /// Whose the files of a folder become.
    pub fn with_owners(mut self, owners: FolderOwners) -> Self {
        self.owners = Some(owners);
        self
    }

    /// Which image, by its name and tag, or by its name alone.
    pub fn with_reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Is told how far it is.
    pub fn with_progress(mut self, listener: ImportListener) -> Self {
        self.progress = Some(listener);
        self
    }
}

impl fmt::Debug for ImportOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportOptions")
            .field("label", &self.label)
            .field("origin", &self.origin)
            .field("start", &self.start)
            .field("owners", &self.owners)
            .field("reference", &self.reference)
            .finish_non_exhaustive()
    }
}
