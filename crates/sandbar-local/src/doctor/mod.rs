//! What this machine has and lacks, in one set of words: for `doctor`, for the errors of a creation, and for the record of a sandbox.

mod condition;
mod document;
mod examine;
mod fallbacks;
mod limits_of_caller;
mod look;
mod report;
mod surroundings;
mod table;
mod wording;
mod words;

pub use condition::{Condition, Fault, Mend, Need, Package, Weight};
pub use document::conditions_document;
pub use look::Doctor;
pub use report::{Finding, FindingState, HostReport};
pub use table::CONDITIONS;

pub(crate) use examine::groups_fault;
pub(crate) use fallbacks::{NO_GATEWAY, fallbacks, named, single_id_fault};
pub(crate) use limits_of_caller::check_limits;
pub(crate) use table::{limits, place};
pub(crate) use wording::Facts;
pub(crate) use words::{about, explain, fault_in, hint, told};
