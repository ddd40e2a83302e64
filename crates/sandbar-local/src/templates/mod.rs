//! Templates as a part of the provider, and where they come from (decision 0013).

mod details;
mod export;
mod image;
mod import;
mod part;
mod provider;
mod registry;
mod source;

pub use details::{TemplateDetails, TemplateLayer};
pub use export::ExportReport;
pub(crate) use part::{LocalTemplates, public};
pub use registry::PullOptions;
pub use source::{FolderOwners, ImportListener, ImportOptions, ImportProgress, TemplateSource};
