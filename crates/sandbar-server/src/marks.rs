use sandbar_core::{Labels, SandboxRecord};
use sandbar_wire::e2b::Metadata;

use crate::error::{ApiError, ApiResult};

/// What the server itself remembers of a sandbox stands in labels that begin so; a caller's metadata can't.
pub(crate) const RESERVED: &str = "sandbar-server/";

/// Entries of a caller's metadata: what a sandbox may have of labels, without those of the server and of backends.
const MAX_METADATA: usize = 100;

const TENANT: &str = "sandbar-server/tenant";
const TEMPLATE: &str = "sandbar-server/template";
const SECURE: &str = "sandbar-server/secure";
const AUTO_RESUME: &str = "sandbar-server/auto-resume";
const PRIVATE_TRAFFIC: &str = "sandbar-server/private-traffic";
const MASK_HOST: &str = "sandbar-server/mask-request-host";
const TIMEOUT: &str = "sandbar-server/timeout";
const INTERNAL: &str = "sandbar-server/internal";
const ALIAS: &str = "sandbar-server/alias";
const CREATION: &str = "sandbar-server/creation";

/// What the server remembers of a sandbox from its creation on. It never changes, so it may be kept as long as the sandbox is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a label of its own")]
pub(crate) struct Marks {
    /// Whose it is.
    pub(crate) tenant: String,
    /// The template's id, as answers name it.
    pub(crate) template: String,
    /// Whether its guest API asks for a token.
    pub(crate) is_secure: bool,
    /// Whether a request wakes it.
    pub(crate) auto_resume: bool,
    /// Whether its ports ask for a token.
    pub(crate) is_private: bool,
    /// What its ports are told as `Host`.
    pub(crate) mask_host: Option<String>,
    /// Seconds that it was given, for a waking by a request.
    pub(crate) timeout: u64,
    /// Whether the server made it for itself: then nobody sees it and it counts for nobody.
    pub(crate) is_internal: bool,
    /// A name of the template, as answers have it.
    pub(crate) alias: Option<String>,
    /// What tells its creation from others, while that is under way.
    pub(crate) creation: Option<String>,
}

impl Marks {
    /// Labels for a sandbox with these marks and the caller's metadata.
    pub(crate) fn to_labels(&self, metadata: &Metadata) -> ApiResult<Labels> {
        if metadata.len() > MAX_METADATA {
            let message = format!("metadata has {} entries: expected at most {MAX_METADATA}", metadata.len());
            return Err(ApiError::bad_request(message));
        }
        let mut labels = Labels::new();
        for (key, value) in metadata {
            if key.starts_with(RESERVED) {
                return Err(ApiError::bad_request(format!(
                    "metadata key \"{key}\" is reserved: keys can't begin with \"{RESERVED}\""
                )));
            }
            labels.insert(key, value)?;
        }
        labels.insert(TENANT, &self.tenant)?;
        labels.insert(TEMPLATE, &self.template)?;
        labels.insert(TIMEOUT, self.timeout.to_string())?;
        let flags = [
            (SECURE, self.is_secure),
            (AUTO_RESUME, self.auto_resume),
            (PRIVATE_TRAFFIC, self.is_private),
            (INTERNAL, self.is_internal),
        ];
        for (key, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            labels.insert(*key, "true")?;
        }
        let texts = [(MASK_HOST, &self.mask_host), (ALIAS, &self.alias), (CREATION, &self.creation)];
        for (key, text) in texts {
            if let Some(text) = text {
                labels.insert(key, text)?;
            }
        }
        Ok(labels)
    }

    /// The marks of a sandbox that this server made; `None` if it did not.
    pub(crate) fn of(record: &SandboxRecord) -> Option<Self> {
        let labels = &record.labels;
        let is_set = |key| labels.get(key) == Some("true");
        let text = |key| labels.get(key).map(str::to_owned);
        Some(Self {
            tenant: labels.get(TENANT)?.to_owned(),
            template: labels.get(TEMPLATE)?.to_owned(),
            is_secure: is_set(SECURE),
            auto_resume: is_set(AUTO_RESUME),
            is_private: is_set(PRIVATE_TRAFFIC),
            mask_host: text(MASK_HOST),
            timeout: labels.get(TIMEOUT)?.parse().ok()?,
            is_internal: is_set(INTERNAL),
            alias: text(ALIAS),
            creation: text(CREATION),
        })
    }

    /// The label that all sandboxes of a tenant have.
    pub(crate) fn tenant_query(tenant: &str) -> ApiResult<Labels> {
        Ok(Labels::new().with(TENANT, tenant)?)
    }
}

/// The caller's metadata of a sandbox.
pub(crate) fn metadata(record: &SandboxRecord) -> Metadata {
    let own = record.labels.iter().filter(|(key, _)| !key.starts_with(RESERVED));
    own.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_labels_that_a_caller_can_not_give() {
        let marks =
            Marks { tenant: "t1".into(), template: "base".into(), is_secure: true, ..Marks::default() };
        let labels = marks.to_labels(&Metadata::from([("a".into(), "b".into())])).unwrap();
        assert_eq!(labels.get("sandbar-server/tenant"), Some("t1"));
        assert_eq!(labels.get("a"), Some("b"));
        assert!(labels.contains_all(&Marks::tenant_query("t1").unwrap()));
        let forged = Metadata::from([("sandbar-server/tenant".into(), "t2".into())]);
        assert!(marks.to_labels(&forged).is_err());
    }
}
