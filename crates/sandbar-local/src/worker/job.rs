use sandbar_core::ErrorKind;
use serde::{Deserialize, Serialize};

use crate::error::ErrorForm;

/// The form of what passes between the two. They are the same executable in all but a moment of an update.
pub(super) const VERSION: u32 = 1;
/// Longest line in either direction, in bytes: a job names nothing but numbers and words, an error at most some names of files.
pub(super) const MAX_LINE: usize = 64 * 1024;
/// The first descriptor of a job.
pub(super) const FIRST: usize = 3;

/// What a worker is to do. Its descriptors are given in the order that each job names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Job {
    /// A tar archive, plain or in gzip or zstd, into an empty folder. Descriptors: the archive; the layers that the folder lies on, the topmost first, which say what the folders
    /// are like that the archive does not name; the folder.
    Unpack {
        /// Whether names that begin with `.wh.` say that something is gone, as in layers of images.
        whiteouts: bool,
        ids: UnpackIds,
        layers: usize,
    },
    /// Layers into one empty folder. Descriptors: the layers, the lowest first; the folder.
    ///
    /// A single layer is copied. What is in the folder afterwards means, as a layer, what all of them meant. Files that the file system can share are shared.
    Merge {
        layers: usize,
        /// Whether what is below the lowest can be something: then the marks for what is gone from there are kept.
        keep_whiteouts: bool,
    },
    /// A folder of somebody's into an empty one. Descriptors: the one, the other.
    Copy {
        /// Whose all of it becomes; else it is whose it is.
        owner: Option<u32>,
    },
    /// What layers made elsewhere lack to be a sandbox' root, into an empty folder on top of them: the user that commands run as, and the folder where they begin.
    /// Descriptors: the layers, the lowest first; the folder.
    Complete {
        layers: usize,
        /// Who is to run commands, by name or number; [`Report::user`] has the name.
        user: Option<String>,
        workdir: Option<String>,
    },
    /// A folder as a tar archive. Descriptors: the folder, the archive.
    Pack { ids: PackIds },
    /// Counts a folder. Descriptor: the folder.
    Measure {
        /// Whether to read all files, for [`Report::digest`].
        digest: bool,
    },
}

/// Whose the files of an archive become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnpackIds {
    /// As the archive says; the worker's own where there is but one id.
    AsIs,
    /// All root's.
    Root,
}

/// Whose the files in an archive are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PackIds {
    /// As in the folder.
    AsIs,
    /// All root's.
    Root,
}

impl Job {
    /// How many descriptors it has.
    pub(super) fn descriptors(&self) -> usize {
        match self {
            Self::Unpack { layers, .. } => layers.saturating_add(2),
            Self::Pack { .. } | Self::Copy { .. } => 2,
            Self::Merge { layers, .. } | Self::Complete { layers, .. } => layers.saturating_add(1),
            Self::Measure { .. } => 1,
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

/// What a job did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// Files, folders, links and marks.
    pub(crate) entries: u64,
    /// Bytes of the files' content; each file once, however many names it has.
    pub(crate) bytes: u64,
    /// Bytes of it that are shared with where they came from and took no copying.
    pub(crate) shared: u64,
    /// Sockets, pipes and devices that were left out.
    pub(crate) skipped: u64,
    /// SHA-256 in hexadecimal digits: with [`Job::Unpack`] of the plain archive, with [`Job::Measure`] of what the folder holds, whatever its times are.
    pub(crate) digest: Option<String>,
    /// With [`Job::Unpack`], of the archive as it came.
    pub(crate) stream_digest: Option<String>,
    /// With [`Job::Complete`], the name of the user that was asked for.
    pub(crate) user: Option<String>,
    /// With [`Job::Complete`], how many of the lowest layers are hidden as a whole by one above them. An overlay takes no notice of the mark that says so, as
    /// it is on the root of a layer.
    pub(crate) hidden: usize,
}

/// A job on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) v: u32,
    pub(super) job: Job,
}

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Progress(Progress),
    Done(Report),
    Failed(ErrorForm),
}

/// Why a job was not done.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// A call on `name` that failed at `doing`.
    pub(super) fn io(doing: &str, name: &[u8], cause: impl Into<std::io::Error>) -> Self {
        let name = name.escape_ascii();
        let error = crate::error::io_error("work", &format!("{doing} `{name}`"), cause);
        Self { kind: error.kind(), message: error.message().to_owned() }
    }
}
