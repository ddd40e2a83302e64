use std::fmt;

use crate::error::{ApiError, ApiResult};

/// The tag that a template has unless it is given others.
pub(crate) const DEFAULT_TAG: &str = "default";

/// Longest name of a template, in bytes: E2B's own bound on a part of a name.
pub(crate) const MAX_NAME: usize = 128;

/// Longest tag, in bytes: E2B's own bound on a part of a name.
pub(crate) const MAX_TAG: usize = 128;

/// How a caller names a template: `[namespace/]name[:tag]`, where the name may be its id. Case and space round it do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Whose, if it says so.
    pub(crate) namespace: Option<String>,
    /// Its name, or its id.
    pub(crate) name: String,
    /// Which build, by a tag or by the build's id.
    pub(crate) tag: Option<String>,
}

impl Reference {
    /// Reads `text`. Another form is an error that says what was expected.
    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        let lower = text.trim().to_lowercase();
        let (path, tag) = match lower.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (lower.as_str(), None),
        };
        let (namespace, name) = match path.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, path),
        };
        if !is_name(name) || !namespace.is_none_or(is_name) || !tag.is_none_or(is_tag_text) {
            return Err(ApiError::bad_request(format!(
                "template name \"{}\" is not valid: expected `[namespace/]name[:tag]` of `a-z 0-9 - _`, in a tag also `.`",
                shown(text)
            )));
        }
        Ok(Self {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
        })
    }

    /// Its tag, or the one that is meant without.
    pub(crate) fn tag_or_default(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)?;
        match &self.tag {
            Some(tag) => write!(f, ":{tag}"),
            None => Ok(()),
        }
    }
}

/// A tag that a caller gives: lower case, and no id of a build, which is what ids are told by.
pub(crate) fn tag(text: &str) -> ApiResult<String> {
    let lower = text.trim().to_lowercase();
    if !is_tag_text(&lower) {
        return Err(ApiError::bad_request(format!(
            "tag \"{}\" is not valid: expected 1 to {MAX_TAG} of `a-z 0-9 - _ .`",
            shown(text)
        )));
    }
    if is_build_id(&lower) {
        return Err(ApiError::bad_request(format!("tag \"{lower}\" is not valid: a tag can't be a UUID")));
    }
    Ok(lower)
}

/// Whether `text` is the id of a build rather than a tag.
pub(crate) fn is_build_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text).is_ok()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
}

fn is_tag_text(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_TAG
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.'))
}

/// A caller's text for a message: bounded, without what a terminal would act upon.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(MAX_NAME).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_read_as_the_spec_says() {
        let read = Reference::parse(" Team/My-App_1:V1.0 ").unwrap();
        assert_eq!(read.to_string(), "team/my-app_1:v1.0");
        assert_eq!(Reference::parse("app").unwrap().tag_or_default(), DEFAULT_TAG);
        for bad in
            ["", ":", "a:", ":a", "/a", "a/", "a/b/c", "a:b:c", "a b", "a.b", "ä", "a/b:c/d", "../a", "a\0"]
        {
            assert!(Reference::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Reference::parse(&"a".repeat(MAX_NAME + 1)).is_err());
    }

    #[test]
    fn a_tag_is_no_uuid() {
        assert_eq!(tag(" V1 ").unwrap(), "v1");
        for bad in ["", "a/b", "a:b", "a b", "8f14e45f-ceea-467f-a8d4-0f2f3b1c2d3e"] {
            assert!(tag(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in "([a-z0-9_-]{1,9}/)?[a-z0-9_-]{1,9}(:[a-z0-9_.-]{1,9})?") {
            let read = Reference::parse(&text).unwrap();
            prop_assert_eq!(read.to_string(), text.clone());
            prop_assert_eq!(Reference::parse(&text.to_uppercase()).unwrap(), read);
        }

        #[test]
        fn nothing_that_is_read_leaves_the_alphabet(text in "\\PC{0,40}") {
            if let Ok(read) = Reference::parse(&text) {
                prop_assert!(read.to_string().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:/".contains(&b)));
                prop_assert!(!read.name.is_empty());
            }
            if let Ok(tag) = tag(&text) {
                prop_assert!(!tag.is_empty() && !tag.contains([':', '/']));
            }
        }
    }
}
