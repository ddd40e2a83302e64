use serde::Deserialize;
use serde_json::Value;

use crate::{Event, FORMAT_VERSION};

/// A line of the record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Line {
    /// An event, and its JSON with the keys that this version does not know.
    Event(Box<Event>, Value),
    /// An event of a later version of the form.
    Later(Value),
    /// What was left of a line when its writer was killed, or what no Sandbar wrote; so many bytes.
    Torn(usize),
    /// Files that were to come are gone: what stood in them is lost to this reader.
    Gap,
}

impl Line {
    /// The event, if this is one.
    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(event, _) => Some(event),
            _ => None,
        }
    }

    /// What stands in `text`, a line without its end; an empty one is nothing.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Versioned {
            v: u32,
        }
        if text.is_empty() {
            return None;
        }
        let torn = Some(Self::Torn(text.len()));
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return torn };
        match Versioned::deserialize(&value) {
            Ok(Versioned { v: FORMAT_VERSION }) => {}
            Ok(Versioned { v }) if v > FORMAT_VERSION => return Some(Self::Later(value)),
            _ => return torn,
        }
        match Event::deserialize(&value) {
            Ok(event) => Some(Self::Event(Box::new(event), value)),
            Err(_) => torn,
        }
    }
}
