//! What sandboxes boot from and share: read-only layers, and templates, which name some of them (decision 0013).
//!
//! A layer is complete from the moment it has its name and never changes after that. Who makes a record or a template that names a layer holds the
//! store's lock, shared, from before he looks for the layer until the name is written; who removes holds it alone. So nothing goes that somebody
//! just began to use.

mod boot;
mod compact;
mod ids;
mod layer;
mod lock;
mod moved;
mod pin;
mod stage;
mod template;
pub(crate) mod unfinished;
mod usage;
mod volume;

pub(crate) use boot::{Boot, TemplateDefaults};
pub(crate) use compact::{Merged, compact};
pub(crate) use ids::{LayerId, STORE_BASE, StoreIds};
pub(crate) use layer::{LAYERS, Layer, LayerDocument, ROOT, USR, layer_size};
pub(crate) use lock::{Hold, StoreLock};
pub(crate) use moved::{move_back, move_out, recover};
pub(crate) use pin::Pin;
pub(crate) use stage::{Staged, sweep as sweep_layers};
pub(crate) use template::TemplateDocument;
pub(crate) use unfinished::lock as lock_unfinished;
pub(crate) use volume::{VOLUMES, Volume, VolumeDocument};
