use serde::{Deserialize, Serialize};

/// The body of every error. SDKs look at `code`, which is the status, and some only at that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The status.
    pub code: i32,
    /// What was wrong, for people.
    pub message: String,
    /// What was wrong, for programs, where E2B has a word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}
