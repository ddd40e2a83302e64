use serde::{Deserialize, Serialize};

/// `POST /volumes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewVolume {
    /// Its name, by which it is mounted.
    pub name: String,
}

/// A volume, in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its id.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Its name.
    pub name: String,
}

/// A volume with what opens its content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAndToken {
    /// Its id.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Its name.
    pub name: String,
    /// The bearer token of its content.
    pub token: String,
    /// The domain where its content is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
}

impl std::fmt::Debug for VolumeAndToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeAndToken")
            .field("volume_id", &self.volume_id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// An entry of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeEntry {
    /// Its name.
    pub name: String,
    /// `file`, `directory`, `symlink` or `unknown`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its path, from the root of the volume.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner's id.
    pub uid: u32,
    /// Group's id.
    pub gid: u32,
    /// When it was last read, by RFC 3339.
    pub atime: String,
    /// When its content was last changed, by RFC 3339.
    pub mtime: String,
    /// When anything of it was last changed, by RFC 3339.
    pub ctime: String,
    /// What it says, if it is a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// `PATCH /volumecontent/{id}/path`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeMetadata {
    /// Owner's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// An error of a volume's content, whose code is a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeErrorBody {
    /// What was wrong, for programs.
    pub code: String,
    /// What was wrong, for people.
    pub message: String,
}
