//! What Sandbar remembers of a sandbox in its metadata, beside the caller's labels.
//!
//! E2B has one map of texts for each sandbox and keeps it as it was at creation. The keys below are ours; `projectId` has the name that other
//! clients of the field give it. A caller's label of such a name is kept under another one, so that labels can't change what we remember.

use std::time::Duration;

use sandbar_core::{DeadlineAction, Error, Labels, ProjectId, Result, SandboxName};
use sandbar_wire::e2b::Metadata;

use crate::config::BACKEND;

const PROJECT: &str = "projectId";
/// All keys that begin so are ours.
const OWN: &str = "sandbar";
/// Of every sandbox that we made: the version of these marks.
const VERSION: &str = "sandbarVersion";
const NAME: &str = "sandbarName";
const ON_DEADLINE: &str = "sandbarOnDeadline";
const LIFETIME: &str = "sandbarLifetime";
const VOLUMES: &str = "sandbarVolumes";
const CREATION: &str = "sandbarCreation";
/// A label whose own name is one of ours.
const LABEL: &str = "sandbarLabel/";

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Whether we made it.
    pub(crate) is_ours: bool,
    pub(crate) project: Option<ProjectId>,
    pub(crate) name: Option<SandboxName>,
    pub(crate) labels: Labels,
    /// What happens at the deadline, which listings do not tell.
    pub(crate) on_deadline: Option<DeadlineAction>,
    /// Time that it was given at creation, which it has again after a sleep.
    pub(crate) lifetime: Option<Duration>,
    /// Whether it was made with volumes, since an answer without any may also be one that does not tell.
    pub(crate) has_volumes: bool,
    /// What tells its creation from others.
    pub(crate) creation: Option<String>,
}

impl Marks {
    /// As metadata.
    pub(crate) fn to_metadata(&self) -> Metadata {
        let mut metadata = labels_to_metadata(&self.labels);
        let mut put = |key: &str, value: &str| metadata.insert(key.to_owned(), value.to_owned());
        if let Some(project) = &self.project {
            put(PROJECT, project.as_str());
        }
        if let Some(name) = &self.name {
            put(NAME, name.as_str());
        }
        if let Some(action) = self.on_deadline {
            put(ON_DEADLINE, action_word(action));
        }
        if let Some(lifetime) = self.lifetime {
            put(LIFETIME, &lifetime.as_secs().to_string());
        }
        if self.has_volumes {
            put(VOLUMES, "true");
        }
        if let Some(creation) = &self.creation {
            put(CREATION, creation);
        }
        if self.is_ours {
            put(VERSION, "1");
        }
        metadata
    }

    /// Reads metadata, ours or anybody's. What can't be one of ours is a label of whoever made it.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let mut marks = Self { is_ours: metadata.contains_key(VERSION), ..Self::default() };
        let mut labels = Metadata::new();
        for (key, value) in metadata {
            match key.as_str() {
                PROJECT if let Ok(project) = ProjectId::new(value.clone()) => marks.project = Some(project),
                NAME => marks.name = SandboxName::new(value.clone()).ok(),
                ON_DEADLINE => marks.on_deadline = action(value),
                LIFETIME => marks.lifetime = value.parse().ok().map(Duration::from_secs),
                VOLUMES => marks.has_volumes = true,
                CREATION => marks.creation = Some(value.clone()),
                VERSION => {}
                _ => {
                    let key = key.strip_prefix(LABEL).unwrap_or(key);
                    labels.insert(key.to_owned(), value.clone());
                }
            }
        }
        // Others' metadata may have keys that labels of ours can't.
        marks.labels = serde_json::to_value(labels).and_then(serde_json::from_value).unwrap_or_default();
        marks
    }
}

/// The caller's labels under names that are not ours.
fn labels_to_metadata(labels: &Labels) -> Metadata {
    let named = |key: &str| {
        let is_ours = key == PROJECT || key.starts_with(OWN);
        if is_ours { format!("{LABEL}{key}") } else { key.to_owned() }
    };
    labels.iter().map(|(key, value)| (named(key), value.to_owned())).collect()
}

/// Metadata that sandboxes with these labels, of this project, have.
pub(crate) fn filter(labels: &Labels, project: Option<&ProjectId>) -> Metadata {
    let mut metadata = labels_to_metadata(labels);
    if let Some(project) = project {
        metadata.insert(PROJECT.to_owned(), project.as_str().to_owned());
    }
    metadata
}

/// Metadata that the sandbox of this name has.
pub(crate) fn name_filter(name: &SandboxName) -> Metadata {
    Metadata::from([(NAME.to_owned(), name.as_str().to_owned())])
}

/// Metadata that what a creation made has.
pub(crate) fn creation_filter(creation: &str) -> Metadata {
    Metadata::from([(CREATION.to_owned(), creation.to_owned())])
}

/// Refuses labels that would take another's place once they are renamed.
pub(crate) fn check(labels: &Labels) -> Result<()> {
    let renamed = labels_to_metadata(labels);
    if renamed.len() == labels.iter().count() {
        return Ok(());
    }
    let message =
        format!("two labels would be the same: keys that begin with `{LABEL}` are E2B's way to keep others");
    Err(Error::invalid("create", message).with_backend(BACKEND))
}

fn action_word(action: DeadlineAction) -> &'static str {
    match action {
        DeadlineAction::Destroy => "destroy",
        DeadlineAction::Pause => "pause",
    }
}

fn action(word: &str) -> Option<DeadlineAction> {
    [DeadlineAction::Destroy, DeadlineAction::Pause].into_iter().find(|action| action_word(*action) == word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_can_not_change_what_is_remembered() {
        let mut labels = Labels::new();
        for key in [PROJECT, NAME, VERSION, ON_DEADLINE, "sandbarLabel/x", "plain"] {
            labels.insert(key, "spoofed").unwrap();
        }
        let marks = Marks {
            is_ours: true,
            project: Some(ProjectId::new("mine").unwrap()),
            labels: labels.clone(),
            on_deadline: Some(DeadlineAction::Pause),
            ..Marks::default()
        };
        let metadata = marks.to_metadata();
        assert_eq!(metadata[PROJECT], "mine");
        assert_eq!(metadata["plain"], "spoofed");
        let read = Marks::of(&metadata);
        assert_eq!(read, marks);
        assert!(read.labels.contains_all(&labels));
        check(&labels).unwrap();
    }

    #[test]
    fn metadata_of_others_is_read_as_labels() {
        let metadata = Metadata::from([
            ("projectId".into(), "with space".into()),
            ("purpose".into(), "x".into()),
            ("sandbar.own".into(), "y".into()),
        ]);
        let marks = Marks::of(&metadata);
        assert!(!marks.is_ours && marks.project.is_none());
        assert_eq!(marks.labels.get("projectId"), Some("with space"));
        assert_eq!(marks.labels.get("sandbar.own"), Some("y"));
    }

    proptest! {
        #[test]
        fn labels_come_back_as_they_were(pairs in prop::collection::btree_map("(projectId|sandbar(Name|Label/)?)?[a-z/]{1,9}", ".{0,9}", 0..6)) {
            let mut labels = Labels::new();
            for (key, value) in &pairs {
                if !value.contains('\0') {
                    labels.insert(key, value).unwrap();
                }
            }
            check(&labels).unwrap();
            let marks = Marks { is_ours: true, labels, ..Marks::default() };
            prop_assert_eq!(Marks::of(&marks.to_metadata()), marks);
        }

        #[test]
        fn any_metadata_is_read(metadata in prop::collection::btree_map(".*", ".*", 0..6)) {
            let _ = Marks::of(&metadata);
        }
    }
}
