use serde::{Deserialize, Serialize};

/// `POST /v3/templates`: registers a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewBuild {
    /// The template's name, which may end with a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name, as older clients send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags that the build gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Processors of its sandboxes.
    #[serde(rename = "cpuCount", default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<i64>,
    /// Memory of its sandboxes in MiB.
    #[serde(rename = "memoryMB", default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<i64>,
    /// Free disk space that its sandboxes want, in MiB.
    #[serde(rename = "minFreeDiskMb", default, skip_serializing_if = "Option::is_none")]
    pub min_free_disk_mb: Option<i64>,
    /// A team, where a user has several.
    #[serde(rename = "teamID", default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// What a build was registered as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredBuild {
    /// The template's id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The build's id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Whether others see it.
    pub public: bool,
    /// Its names without namespace.
    pub aliases: Vec<String>,
    /// Its names with namespace.
    #[serde(default)]
    pub names: Vec<String>,
    /// Tags that the build gets.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Where to send files that a step copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUpload {
    /// Whether they are there already.
    pub present: bool,
    /// Where to send them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// `POST /v2/templates/{id}/builds/{build}`: what to build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildOrder {
    /// From this image.
    #[serde(rename = "fromImage", default, skip_serializing_if = "Option::is_none")]
    pub from_image: Option<String>,
    /// From this template.
    #[serde(rename = "fromTemplate", default, skip_serializing_if = "Option::is_none")]
    pub from_template: Option<String>,
    /// How to log in where the image is.
    #[serde(rename = "fromImageRegistry", default, skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<serde_json::Value>,
    /// What its sandboxes run from the start.
    #[serde(rename = "startCmd", default, skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    /// What succeeds once that is ready.
    #[serde(rename = "readyCmd", default, skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
    /// Whether results of earlier builds are not to be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// The steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<OrderedStep>>,
}

/// A step of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedStep {
    /// `COPY`, `RUN`, `WORKDIR`, `USER` or `ENV`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// The hash of the files that it copies.
    #[serde(rename = "filesHash", default, skip_serializing_if = "Option::is_none")]
    pub files_hash: Option<String>,
    /// Whether the result of an earlier build is not to be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

/// How a build is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// The template's id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The build's id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// `waiting`, `building`, `ready` or `error`.
    pub status: String,
    /// Its log as lines.
    pub logs: Vec<String>,
    /// Its log.
    #[serde(rename = "logEntries", default)]
    pub log_entries: Vec<BuildLogEntry>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<BuildReason>,
}

/// A word of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogEntry {
    /// When, by RFC 3339.
    pub timestamp: String,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// What.
    pub message: String,
    /// In which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Why a build failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReason {
    /// For people.
    pub message: String,
    /// In which step: its number from 1, `base` or `finalize`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The last words.
    #[serde(rename = "logEntries", default, skip_serializing_if = "Vec::is_empty")]
    pub log_entries: Vec<BuildLogEntry>,
}

/// Some of a build's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildLogs {
    /// The entries.
    pub logs: Vec<BuildLogEntry>,
}

/// What a name of a template leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliasAnswer {
    /// The template's id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether others see it.
    pub public: bool,
}

/// `POST /templates/tags`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignTags {
    /// The build, as `name:tag`.
    pub target: String,
    /// The tags.
    pub tags: Vec<String>,
}

/// What tags were given to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedTags {
    /// The build's id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// The tags.
    pub tags: Vec<String>,
}

/// `DELETE /templates/tags`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTags {
    /// The template.
    pub name: String,
    /// The tags.
    pub tags: Vec<String>,
}

/// A tag of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateTag {
    /// The tag.
    pub tag: String,
    /// The build that has it.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Since when, by RFC 3339.
    #[serde(rename = "createdAt")]
    pub created_at: String,
}

/// A template, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedTemplate {
    /// Its id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// The id of its newest build.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// Processors of its sandboxes.
    pub cpu_count: u32,
    /// Memory of its sandboxes in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Its size in MiB.
    #[serde(rename = "diskSizeMB")]
    pub disk_size_mb: u64,
    /// Whether others see it.
    pub public: bool,
    /// Its names without namespace.
    pub aliases: Vec<String>,
    /// Its names with namespace.
    pub names: Vec<String>,
    /// When it was made, by RFC 3339.
    pub created_at: String,
    /// When it was last changed, by RFC 3339.
    pub updated_at: String,
    /// Who made it; nobody tells.
    pub created_by: Option<serde_json::Value>,
    /// When a sandbox was last made from it, by RFC 3339.
    pub last_spawned_at: Option<String>,
    /// How many sandboxes were made from it.
    pub spawn_count: i64,
    /// How many builds it has.
    pub build_count: i64,
    /// The version of the guest's own API.
    pub envd_version: String,
    /// How its newest build is.
    pub build_status: String,
}

/// A template with its builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateWithBuilds {
    /// Its id.
    #[serde(rename = "templateID")]
    pub template_id: String,
    /// Whether others see it.
    pub public: bool,
    /// Its names without namespace.
    pub aliases: Vec<String>,
    /// Its names with namespace.
    pub names: Vec<String>,
    /// When it was made, by RFC 3339.
    pub created_at: String,
    /// When it was last changed, by RFC 3339.
    pub updated_at: String,
    /// When a sandbox was last made from it, by RFC 3339.
    pub last_spawned_at: Option<String>,
    /// How many sandboxes were made from it.
    pub spawn_count: i64,
    /// Its builds, newest first.
    pub builds: Vec<ListedBuild>,
}

/// A build, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedBuild {
    /// Its id.
    #[serde(rename = "buildID")]
    pub build_id: String,
    /// How it is.
    pub status: String,
    /// When it was registered, by RFC 3339.
    pub created_at: String,
    /// When it was last changed, by RFC 3339.
    pub updated_at: String,
    /// When it ended, by RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    /// Processors of its sandboxes.
    pub cpu_count: u32,
    /// Memory of its sandboxes in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: u64,
    /// Its size in MiB.
    #[serde(rename = "diskSizeMB", default, skip_serializing_if = "Option::is_none")]
    pub disk_size_mb: Option<u64>,
    /// The version of the guest's own API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envd_version: Option<String>,
}

/// `PATCH /templates/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateUpdate {
    /// Whether others see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<bool>,
}

/// What a template is called after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateUpdated {
    /// Its names with namespace.
    #[serde(default)]
    pub names: Vec<String>,
}

/// `POST /sandboxes/{id}/snapshots`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSnapshot {
    /// A name, which may end with a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether what runs is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// Its id, which serves as the id of a template.
    #[serde(rename = "snapshotID")]
    pub snapshot_id: String,
    /// Its names with namespace and tag.
    #[serde(default)]
    pub names: Vec<String>,
}
