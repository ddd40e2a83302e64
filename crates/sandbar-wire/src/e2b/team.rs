use serde::{Deserialize, Serialize};

/// A team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Team {
    /// Its id.
    #[serde(rename = "teamID")]
    pub team_id: String,
    /// Its name.
    pub name: String,
    /// A key of its, where the server tells one.
    pub api_key: String,
    /// Whether it is the one that counts where none is named.
    pub is_default: bool,
}

/// What a team's sandboxes were at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamMetric {
    /// When (RFC 3339).
    pub timestamp: String,
    /// When, in seconds since 1970.
    pub timestamp_unix: i64,
    /// Sandboxes that ran.
    pub concurrent_sandboxes: u32,
    /// Sandboxes made a second.
    pub sandbox_start_rate: f64,
}
