//! Results of steps by what they depend on: `layers/cache/KEY.json` names the layer. What stands there counts as in use, until it is taken away.

use jiff::Timestamp;
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use sandbar_core::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::key::Key;
use crate::error::io_error;
use crate::home::Home;
use crate::store::{LayerId, StoreLock};

const BUILD: &str = "build";
/// The folder, in the data folder.
const FOLDER: &str = "layers/cache";
const ENDING: &str = ".json";
/// Longest entry that is read, in bytes: it names at most as many layers as a template has.
const MAX_ENTRY: usize = 64 << 10;
/// The form of an entry.
const VERSION: u32 = 1;

/// What a step led to.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    version: u32,
    created_at: Timestamp,
    /// All layers after it, the topmost first: where there would have been too many, some became one.
    layers: Vec<LayerId>,
    /// Keys of a newer version.
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// The layers that a step led to; `None` where that is not known, or one of them is gone.
pub(super) fn find(home: &Home, key: &Key) -> Result<Option<Vec<LayerId>>> {
    let Some(entry) = read(home, &format!("{}{ENDING}", key.as_str()))? else { return Ok(None) };
    for layer in &entry.layers {
        if !home.has_layer(layer)? {
            return Ok(None);
        }
    }
    Ok(Some(entry.layers))
}

/// Keeps what a step led to. The lock is held from before the layer got its name.
pub(super) fn keep(home: &Home, key: &Key, layers: &[LayerId], _lock: &StoreLock) -> Result<()> {
    let broken =
        |cause: std::io::Error| io_error(BUILD, &format!("`{}/{FOLDER}`", home.path().display()), cause);
    match mkdirat(home, FOLDER, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(cause) => return Err(broken(cause.into())),
    }
    let entry =
        Entry { version: VERSION, created_at: crate::home::now(), layers: layers.to_vec(), rest: Map::new() };
    let text = serde_json::to_vec(&entry).map_err(|cause| broken(cause.into()))?;
    home.replace_at(&format!("{FOLDER}/{}{ENDING}", key.as_str()), &text, MAX_ENTRY).map_err(broken)
}

impl Home {
    /// The layers that results of builds name.
    pub(crate) fn cached_layers(&self) -> Result<Vec<LayerId>> {
        let mut layers = Vec::new();
        for name in self.cache_entries()? {
            layers.extend(read(self, &name)?.into_iter().flat_map(|entry| entry.layers));
        }
        Ok(layers)
    }

    fn cache_entries(&self) -> Result<Vec<String>> {
        let names = self.entries(FOLDER).map_err(|cause| {
            io_error("look for users", &format!("`{}/{FOLDER}`", self.path().display()), cause)
        })?;
        // What has another ending is an entry that was being written.
        Ok(names.into_iter().filter(|name| name.ends_with(ENDING)).collect())
    }
}

fn read(home: &Home, name: &str) -> Result<Option<Entry>> {
    home.read_document(&format!("{FOLDER}/{name}"), MAX_ENTRY, VERSION)
}
