use std::borrow::Cow;

use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use sandbar_core::SandboxRecord;
use sandbar_wire::e2b::{Metadata, SandboxState};

use super::answer::{exposed, started_at};
use crate::error::{ApiError, ApiResult};
use crate::marks::{Marks, metadata};

/// Which sandboxes a list has.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) states: Vec<SandboxState>,
    pub(super) metadata: Metadata,
    pub(super) started_after: Option<Timestamp>,
    pub(super) template: Option<String>,
}

impl Filter {
    /// Whether a sandbox is meant.
    pub(super) fn wants(&self, record: &SandboxRecord, marks: &Marks) -> bool {
        let Some(state) = exposed(record.state) else { return false };
        let is_of_template = self
            .template
            .as_ref()
            .is_none_or(|name| marks.template == *name || marks.alias.as_ref() == Some(name));
        let has = metadata(record);
        self.states.contains(&state)
            && is_of_template
            && self.started_after.is_none_or(|after| started_at(record) >= after)
            && self.metadata.iter().all(|(key, value)| has.get(key) == Some(value))
    }
}

/// States as they are listed: `running,paused`. Both if nothing is.
pub(super) fn states(text: Option<&str>) -> ApiResult<Vec<SandboxState>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(vec![SandboxState::Running, SandboxState::Paused]);
    };
    text.split(',')
        .map(|word| match word.trim() {
            "running" => Ok(SandboxState::Running),
            "paused" => Ok(SandboxState::Paused),
            other => {
                let message = format!("state \"{other}\" is not valid: expected \"running\" or \"paused\"");
                Err(ApiError::bad_request(message))
            }
        })
        .collect()
}

/// Metadata in a query, which SDKs encode three times: each key and value, the form that they make, and the query. The last was decoded before.
pub(super) fn metadata_of(text: Option<&str>) -> ApiResult<Metadata> {
    let Some(text) = text else { return Ok(Metadata::new()) };
    let form = unescape(text)?;
    let pairs = form.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((unescape(key)?, unescape(value)?))
        })
        .collect()
}

/// As a form's values are: `+` is a space.
fn unescape(text: &str) -> ApiResult<String> {
    let spaced: Cow<'_, str> =
        if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded
        .map(Cow::into_owned)
        .map_err(|_| ApiError::bad_request("metadata in the query is not UTF-8 once it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_three_times() {
        // What is on the wire is `metadata=a%3Db%252520c`.
        let read = metadata_of(Some("a=b%2520c")).unwrap();
        assert_eq!(read, Metadata::from([("a".into(), "b c".into())]));
        let read = metadata_of(Some("a%2526b=c%253Dd&e=%25E2%2582%25AC")).unwrap();
        assert_eq!(read, Metadata::from([("a&b".into(), "c=d".into()), ("e".into(), "€".into())]));
        assert!(metadata_of(Some("a=%25ff")).is_err());
        assert!(metadata_of(None).unwrap().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_metadata_comes_through(pairs in proptest::collection::btree_map(".{0,9}", ".{0,9}", 0..4)) {
            let escaped = |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
            let mut form = form_urlencoded::Serializer::new(String::new());
            for (key, value) in &pairs {
                form.append_pair(&escaped(key), &escaped(value));
            }
            proptest::prop_assert_eq!(metadata_of(Some(&form.finish())).unwrap(), pairs);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = metadata_of(Some(&text));
            let _ = states(Some(&text));
        }
    }

    #[test]
    fn states_are_a_list_of_two_words() {
        assert_eq!(states(None).unwrap().len(), 2);
        assert_eq!(states(Some("running,paused")).unwrap(), [SandboxState::Running, SandboxState::Paused]);
        assert_eq!(states(Some("paused")).unwrap(), [SandboxState::Paused]);
        assert!(states(Some("stopped")).is_err());
    }
}
