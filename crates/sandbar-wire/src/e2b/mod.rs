//! E2B's REST API: the documents of its control plane, for servers and clients. Unknown fields are ignored on reading.

mod error;

pub use error::ErrorBody;

use std::collections::BTreeMap;

/// A sandbox' metadata: the caller's own pairs.
pub type Metadata = BTreeMap<String, String>;
