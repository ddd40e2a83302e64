//! Templates as a part of the provider, and where they come from.

mod part;

pub(crate) use part::{LocalTemplates, public};
