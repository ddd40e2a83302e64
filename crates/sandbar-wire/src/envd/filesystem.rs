use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json::{self, base64_bytes, integer, is_default, or_default};
use super::{Empty, Timestamp};

macro_rules! open_enum {
    ($(#[$doc:meta])* $type:ident { $($(#[$item:meta])* $name:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $type {
            /// Unset, or a value that this version does not know.
            #[default]
            Unspecified,
            $($(#[$item])* $name,)*
        }

        impl $type {
            const NAMES: &'static [(&'static str, i32)] = &[$(($text, $number),)*];
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(match self {
                    $(Self::$name => $text,)*
                    Self::Unspecified => Self::UNSPECIFIED,
                })
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(match json::enumeration(deserializer, Self::NAMES)? {
                    $($number => Self::$name,)*
                    _ => Self::Unspecified,
                })
            }
        }
    };
}

open_enum! {
    /// What an entry is. A symbolic link has the type of its target; one that dangles is unspecified.
    FileType {
        /// Anything that is neither a folder nor a link.
        File = 1 "FILE_TYPE_FILE",
        /// A folder.
        Directory = 2 "FILE_TYPE_DIRECTORY",
        /// A symbolic link whose target can't be looked at.
        Symlink = 3 "FILE_TYPE_SYMLINK",
    }
}

impl FileType {
    const UNSPECIFIED: &'static str = "FILE_TYPE_UNSPECIFIED";
}

open_enum! {
    /// What happened to an entry.
    EventType {
        /// It appeared.
        Create = 1 "EVENT_TYPE_CREATE",
        /// Its contents changed.
        Write = 2 "EVENT_TYPE_WRITE",
        /// It was removed.
        Remove = 3 "EVENT_TYPE_REMOVE",
        /// It was renamed; this is the old name.
        Rename = 4 "EVENT_TYPE_RENAME",
        /// Its mode, owner, times or attributes changed.
        Chmod = 5 "EVENT_TYPE_CHMOD",
    }
}

impl EventType {
    const UNSPECIFIED: &'static str = "EVENT_TYPE_UNSPECIFIED";
}

/// A file, folder or link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EntryInfo {
    /// Last part of the path; lossy where it is not UTF-8 (see `name_b64`).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub name: String,
    /// What it is.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub file_type: FileType,
    /// Absolute path; lossy where it is not UTF-8 (see `path_b64`).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub path: String,
    /// Bytes.
    #[serde(
        deserialize_with = "integer",
        serialize_with = "json::int64",
        skip_serializing_if = "is_default"
    )]
    pub size: i64,
    /// Permission bits alone (`0o644`).
    #[serde(deserialize_with = "integer", skip_serializing_if = "is_default")]
    pub mode: u32,
    /// Go's text form (`-rw-r--r--`).
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub permissions: String,
    /// Name of the owner, or its number.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub owner: String,
    /// Name of the group, or its number.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub group: String,
    /// Last change of the contents.
    #[serde(alias = "modified_time", skip_serializing_if = "Option::is_none")]
    pub modified_time: Option<Timestamp>,
    /// Of a link: the absolute path it leads to, or its own path where it dangles.
    #[serde(alias = "symlink_target", skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    /// What was uploaded with the file as metadata.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub metadata: BTreeMap<String, String>,
    /// Sandbar's extension: the exact name, where it is not UTF-8.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub name_b64: Option<Bytes>,
    /// Sandbar's extension: the exact path, where it is not UTF-8.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<Bytes>,
}

/// A request that only names a path: `Stat`, `MakeDir`, `Remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PathRequest {
    /// Absolute, `~`, or relative to the default working folder.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// Sandbar's extension: the exact path; used instead of `path`.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<Bytes>,
}

/// Answer of `Stat`, `MakeDir` and `Move`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryResponse {
    /// The entry.
    #[serde(deserialize_with = "or_default")]
    pub entry: EntryInfo,
}

/// `Move`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MoveRequest {
    /// From.
    #[serde(deserialize_with = "or_default")]
    pub source: String,
    /// To; missing parents are made.
    #[serde(deserialize_with = "or_default")]
    pub destination: String,
    /// Sandbar's extension: the exact source.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub source_b64: Option<Bytes>,
    /// Sandbar's extension: the exact destination.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub destination_b64: Option<Bytes>,
}

/// `ListDir`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListDirRequest {
    /// Which folder.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// Levels below it; 0 means 1.
    #[serde(deserialize_with = "integer")]
    pub depth: u32,
    /// Sandbar's extension: the exact path.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<Bytes>,
}

/// Answer of `ListDir`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListDirResponse {
    /// In the order of a walk by name.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub entries: Vec<EntryInfo>,
}

/// `WatchDir` and `CreateWatcher`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchDirRequest {
    /// Which folder.
    #[serde(deserialize_with = "or_default")]
    pub path: String,
    /// Whether folders below it, and those to come, are watched too.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub recursive: bool,
    /// Whether events carry the entry.
    #[serde(alias = "include_entry", deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub include_entry: bool,
    /// Whether a network file system may be watched, which reports only what this machine does to it.
    #[serde(
        alias = "allow_network_mounts",
        deserialize_with = "or_default",
        skip_serializing_if = "is_default"
    )]
    pub allow_network_mounts: bool,
    /// Sandbar's extension: the exact path.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<Bytes>,
}

/// Something happened in a watched folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FilesystemEvent {
    /// Path relative to the watched folder.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub name: String,
    /// What.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub event_type: EventType,
    /// The entry, for creations, writes and mode changes, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryInfo>,
    /// Sandbar's extension: the exact name, where it is not UTF-8.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub name_b64: Option<Bytes>,
    /// Sandbar's extension: of a rename within what is watched, the new path relative to the watched folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Sandbar's extension: the exact new name, where it is not UTF-8.
    #[serde(with = "base64_bytes", skip_serializing_if = "Option::is_none")]
    pub new_name_b64: Option<Bytes>,
}

/// A message of `WatchDir`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WatchForm", into = "WatchForm")]
#[expect(clippy::large_enum_variant, reason = "nearly every message is the large one")]
pub enum WatchDirEvent {
    /// The watch is armed; always the first.
    Start,
    /// An event.
    Filesystem(FilesystemEvent),
    /// Nothing happened for a while.
    Keepalive,
    /// Nothing that this version knows.
    Unknown,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WatchForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Empty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filesystem: Option<FilesystemEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keepalive: Option<Empty>,
}

impl From<WatchForm> for WatchDirEvent {
    fn from(form: WatchForm) -> Self {
        match form {
            WatchForm { start: Some(_), .. } => Self::Start,
            WatchForm { filesystem: Some(event), .. } => Self::Filesystem(event),
            WatchForm { keepalive: Some(_), .. } => Self::Keepalive,
            _ => Self::Unknown,
        }
    }
}

impl From<WatchDirEvent> for WatchForm {
    fn from(event: WatchDirEvent) -> Self {
        let mut form = Self::default();
        match event {
            WatchDirEvent::Start => form.start = Some(Empty {}),
            WatchDirEvent::Filesystem(event) => form.filesystem = Some(event),
            WatchDirEvent::Keepalive => form.keepalive = Some(Empty {}),
            WatchDirEvent::Unknown => {}
        }
        form
    }
}

/// Answer of `CreateWatcher`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CreateWatcherResponse {
    /// Names the watcher in later calls.
    #[serde(alias = "watcher_id", deserialize_with = "or_default")]
    pub watcher_id: String,
}

/// `GetWatcherEvents` and `RemoveWatcher`.
pub type WatcherRequest = CreateWatcherResponse;

/// Answer of `GetWatcherEvents`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatcherEvents {
    /// What happened since the last call.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_default")]
    pub events: Vec<FilesystemEvent>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::json::round;
    use super::*;

    #[test]
    fn entries_look_like_the_sample() {
        let text = r#"{"entry":{"name":"a.txt","type":"FILE_TYPE_FILE","path":"/home/user/a.txt","size":"5","mode":420,"permissions":"-rw-r--r--","owner":"user","group":"user","modifiedTime":"2026-01-01T00:00:00Z"}}"#;
        let entry: EntryResponse = serde_json::from_str(text).unwrap();
        assert_eq!((entry.entry.size, entry.entry.mode), (5, 0o644));
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        let number: EntryInfo = serde_json::from_str(r#"{"type":2,"size":5,"x":{}}"#).unwrap();
        assert_eq!((number.file_type, number.size), (FileType::Directory, 5));
    }

    #[test]
    fn both_spellings_of_field_names_are_read() {
        for text in [r#"{"include_entry":true}"#, r#"{"includeEntry":true}"#] {
            assert!(serde_json::from_str::<WatchDirRequest>(text).unwrap().include_entry);
        }
    }

    #[test]
    fn watch_events_look_like_the_samples() {
        assert_eq!(serde_json::to_string(&WatchDirEvent::Start).unwrap(), r#"{"start":{}}"#);
        let event =
            FilesystemEvent { name: "f".into(), event_type: EventType::Create, ..FilesystemEvent::default() };
        let text = r#"{"events":[{"name":"f","type":"EVENT_TYPE_CREATE"}]}"#;
        assert_eq!(serde_json::to_string(&WatcherEvents { events: vec![event.clone()] }).unwrap(), text);
        assert_eq!(round(&WatchDirEvent::Filesystem(event.clone())), WatchDirEvent::Filesystem(event));
    }

    proptest! {
        #[test]
        fn entries_round_trip(
            name in ".*", size in any::<i64>(), mode in any::<u32>(), exact in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let entry = EntryInfo { name, size, mode, name_b64: Some(exact.into()), ..EntryInfo::default() };
            prop_assert_eq!(round(&entry), entry);
        }
    }
}
