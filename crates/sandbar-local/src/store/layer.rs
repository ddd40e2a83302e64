use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result};
use sandbar_engine::Lower;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{LayerId, StoreIds};
use crate::error::{engine, fail, found, io_error};
use crate::home::Home;

/// The folder of all layers, in the data folder.
pub(crate) const LAYERS: &str = "layers";
/// The file in a layer's folder that tells of it.
pub(super) const DOCUMENT: &str = "layer.json";
/// The part of a layer that lies over the root file system.
pub(crate) const ROOT: &str = "root";
/// The part that lies over the host's `/usr`, where there is one.
pub(crate) const USR: &str = "usr";
/// As [`ROOT`], of a layer that was a sandbox' writable one: it has all of that, as it was.
const MOVED_ROOT: &str = "fs/upper";
/// As [`USR`], of such a layer.
const MOVED_USR: &str = "fs/usr-upper";
/// Longest document that is read, in bytes.
pub(super) const MAX_DOCUMENT: usize = 1 << 20;
/// The form of a layer's document.
pub(super) const VERSION: u32 = 1;

/// What is known of a layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LayerDocument {
    pub(crate) version: u32,
    pub(crate) id: LayerId,
    pub(crate) created_at: Timestamp,
    /// Bytes of its files; `None` where nobody counted them.
    pub(crate) size_bytes: Option<u64>,
    /// Whose its files are on disk.
    pub(crate) ids: StoreIds,
    /// Keys of a newer version.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// A layer, opened.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) document: LayerDocument,
    pub(crate) root: OwnedFd,
    pub(crate) usr: Option<OwnedFd>,
}

impl LayerDocument {
    /// Of a layer that is made now.
    pub(crate) fn new(id: LayerId, ids: StoreIds, size_bytes: Option<u64>) -> Self {
        Self { version: VERSION, id, created_at: crate::home::now(), size_bytes, ids, rest: Map::new() }
    }

    /// Reads it; `None` means that there is positively no such layer.
    pub(crate) fn read(home: &Home, id: &LayerId) -> Result<Option<Self>> {
        let place = format!("{LAYERS}/{id}/{DOCUMENT}");
        home.read_document(&place, MAX_DOCUMENT, VERSION)
    }
}

impl Layer {
    /// Opens it; `None` means that there is positively no such layer.
    pub(crate) fn open(home: &Home, id: &LayerId) -> Result<Option<Self>> {
        let Some(document) = LayerDocument::read(home, id)? else { return Ok(None) };
        let broken =
            |cause: Errno| io_error("open", &format!("`{}/{LAYERS}/{id}`", home.path().display()), cause);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |part: &str| openat(home, format!("{LAYERS}/{id}/{part}"), flags, Mode::empty());
        let (root, usr) = match found(open(ROOT)).map_err(broken)? {
            Some(root) => (root, USR),
            None => (open(MOVED_ROOT).map_err(broken)?, MOVED_USR),
        };
        let usr = found(open(usr)).map_err(broken)?;
        Ok(Some(Self { document, root, usr }))
    }

    /// The part over the root file system.
    pub(crate) fn lower(&self) -> Lower<'_> {
        Lower { dir: self.root.as_fd(), owners: self.document.ids.owners() }
    }

    /// The part over the host's `/usr`.
    pub(crate) fn usr_lower(&self) -> Option<Lower<'_>> {
        let owners = self.document.ids.owners();
        self.usr.as_ref().map(|usr| Lower { dir: usr.as_fd(), owners })
    }
}

/// Bytes that a layer takes on disk, measured within `bound`.
pub(crate) fn layer_size(home: &Home, id: &LayerId, bound: Duration) -> Result<u64> {
    const MEASURE: &str = "measure";
    let named = || format!("layer `{id}`");
    let document = LayerDocument::read(home, id)?
        .ok_or_else(|| fail(ErrorKind::NotFound, MEASURE, format!("{} is gone", named())))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(home, format!("{LAYERS}/{id}"), flags, Mode::empty())
        .map_err(|cause| io_error(MEASURE, &named(), cause))?;
    sandbar_engine::stored_size(folder.as_fd(), &document.ids.to_mode(), bound)
        .map(|size| size.bytes)
        .map_err(|cause| engine(MEASURE, cause))
}

impl Home {
    /// The ids of all layers.
    pub(crate) fn layers(&self) -> Result<Vec<LayerId>> {
        let names = self.entries(LAYERS).map_err(|cause| {
            io_error("list layers", &format!("`{}/{LAYERS}`", self.path().display()), cause)
        })?;
        Ok(names.into_iter().filter_map(|name| LayerId::try_from(name).ok()).collect())
    }

    /// Whether a layer is there.
    pub(crate) fn has_layer(&self, id: &LayerId) -> Result<bool> {
        let place = format!("{LAYERS}/{id}");
        let seen = found(statat(self, &place, AtFlags::SYMLINK_NOFOLLOW));
        Ok(seen.map_err(|cause| io_error("look up", &format!("layer `{id}`"), cause))?.is_some())
    }

    /// Reads a document of the store; `None` means that it is positively absent. One that is spoilt, or newer than `version`, is an error.
    pub(crate) fn read_document<T: for<'a> Deserialize<'a>>(
        &self,
        place: &str,
        limit: usize,
        version: u32,
    ) -> Result<Option<T>> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let path = format!("{}/{place}", self.path().display());
        let broken = |cause: std::io::Error| io_error("read", &format!("`{path}`"), cause);
        let spoilt = |why: &dyn std::fmt::Display| {
            fail(ErrorKind::Unexpected, "read", format!("`{path}` can't be understood: {why}"))
        };
        let Some(bytes) = self.read_at(place, limit).map_err(broken)? else { return Ok(None) };
        let of: Versioned = serde_json::from_slice(&bytes).map_err(|cause| spoilt(&cause))?;
        if of.version > version {
            let why = format!("`{path}` has version {}; this sandbar reads up to {version}", of.version);
            return Err(
                fail(ErrorKind::Config, "read", why).with_hint("use the newer `sandbar` that made it")
            );
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|cause| spoilt(&cause))
    }
}
