//! The templates that are there from the first start: `base` and `code-interpreter-v1`.

mod code;
mod packages;
mod service;
mod survey;
mod template;

use std::sync::Arc;

use sandbar_core::{SandboxProvider, TemplateId};

use crate::config::CodeInterpreter;
use crate::error::ApiResult;
use code::CodeTemplate;

/// A template that every tenant has and nobody made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// The backend's own default.
    Base,
    /// With a service that runs cells.
    CodeInterpreter,
}

impl Builtin {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Base, Self::CodeInterpreter];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::CodeInterpreter => "code-interpreter-v1",
        }
    }

    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// How far they are.
#[derive(Debug)]
pub(crate) struct Builtins {
    code: Arc<CodeTemplate>,
}

impl Builtins {
    pub(crate) fn new(provider: Arc<dyn SandboxProvider>, wanted: CodeInterpreter) -> Self {
        Self { code: Arc::new(CodeTemplate::new(provider, wanted)) }
    }

    /// Begins to make what is not there yet. It ends with the runtime.
    pub(crate) fn prepare(&self) {
        self.code.prepare();
    }

    /// What a sandbox of it boots from: `None` is the backend's default. Waits while it is being made, but not for ever.
    pub(crate) async fn template(&self, which: Builtin) -> ApiResult<Option<TemplateId>> {
        match which {
            Builtin::Base => Ok(None),
            Builtin::CodeInterpreter => self.code.template().await.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_what_they_name() {
        for one in Builtin::ALL {
            assert_eq!(Builtin::named(one.name()), Some(one));
        }
        assert_eq!(Builtin::named("host"), None);
    }
}
