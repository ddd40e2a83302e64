use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};

use sandbar_core::{EnvVars, Error, ErrorKind, Result, TemplateId, UserName};
use sandbar_engine::rootfs::Skeleton;
use sandbar_engine::{HostPrograms, IdMode, Lower, Root};
use serde::{Deserialize, Serialize};

use super::{Layer, LayerId, TemplateDocument};
use crate::error::fail;
use crate::home::Home;
use crate::template::{self, Base};

/// Most bytes of a command, each word with its NUL: as of variables, which start with it.
const MAX_COMMAND: usize = EnvVars::MAX_BYTES;

/// What a sandbox boots from, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Boot {
    /// The template, by the caller's id; `host` where there is no other.
    pub(crate) template: TemplateId,
    /// Whether it lies over the host's own programs.
    pub(crate) on_host: bool,
    /// The topmost first.
    pub(crate) layers: Vec<LayerId>,
    /// What the template has for sandboxes that say nothing of it.
    #[serde(default)]
    pub(crate) defaults: TemplateDefaults,
}

/// What a template has for sandboxes that say nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TemplateDefaults {
    /// Environment of every command, below the sandbox' own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) env: BTreeMap<String, String>,
    /// Where commands begin; the user's home if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workdir: Option<String>,
    /// Who runs commands; `user` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<UserName>,
    /// The main command of a sandbox that is given none: program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) start: Vec<String>,
    /// The command that succeeds once the main command is ready: program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ready: Vec<String>,
}

impl TemplateDefaults {
    /// Refuses what no sandbox could start with.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        let Self { env, workdir, user: _, start, ready } = self;
        let words = |argv: &[String]| argv.iter().map(|word| word.len() + 1).sum();
        let sizes: [(&str, usize, usize); 4] = [
            ("environment", self.env_bytes(), EnvVars::MAX_BYTES),
            ("working folder", workdir.as_ref().map_or(0, String::len), sandbar_archive::MAX_PATH),
            ("command", words(start), MAX_COMMAND),
            ("ready command", words(ready), MAX_COMMAND),
        ];
        for (what, size, most) in sizes {
            if size > most {
                let why = format!("the template's {what} takes {size} bytes, and {most} are the most");
                return Err(fail(ErrorKind::InvalidInput, operation, why));
            }
        }
        match env.iter().find(|(name, value)| name.len() + 1 + value.len() > EnvVars::MAX_VARIABLE) {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(64).collect();
                let why = format!(
                    "the template's variable `{}` is longer than {} bytes with its value",
                    name.escape_debug(),
                    EnvVars::MAX_VARIABLE
                );
                Err(fail(ErrorKind::InvalidInput, operation, why))
            }
        }
    }

    /// What its variables take together, as [`EnvVars::bytes`] counts.
    pub(crate) fn env_bytes(&self) -> usize {
        self.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
    }
}

impl Boot {
    /// The `host` template alone.
    pub(crate) fn host() -> Self {
        Self {
            template: template::host_id(),
            on_host: true,
            layers: Vec::new(),
            defaults: TemplateDefaults::default(),
        }
    }

    /// Whether it is what its template has now, as long as that is there: somebody may have removed or replaced it since the caller looked. For whoever
    /// holds the store. Layers that are a moment of a sandbox lie over those of its template.
    pub(crate) fn check(&self, home: &Home) -> Result<()> {
        let is_snapshot = self.layers.first().is_some_and(LayerId::is_snapshot);
        for id in &self.layers {
            if !home.has_layer(id)? {
                return Err(missing(&self.template, id));
            }
        }
        if self.template.as_str() == template::HOST || is_snapshot {
            return Ok(());
        }
        match TemplateDocument::read(home, &self.template)? {
            Some(document) if document.layers == self.layers && document.on_host == self.on_host => Ok(()),
            Some(_) => {
                Err(fail(ErrorKind::Conflict, "create", format!("template `{}` was replaced", self.template))
                    .with_hint("try again: the next attempt takes what it is now"))
            }
            None => Err(Error::not_found("create", format!("template `{}`", self.template))
                .with_backend(crate::config::BACKEND)),
        }
    }

    /// Opens everything that a launch mounts. Whoever does not want it to go meanwhile holds the store's lock.
    pub(crate) fn open(&self, home: &Home, base: &Base, ids: &IdMode) -> Result<OpenBoot> {
        let mut layers = Vec::with_capacity(self.layers.len());
        for id in &self.layers {
            let layer = Layer::open(home, id)?.ok_or_else(|| missing(&self.template, id))?;
            if let Some(why) = layer.document.ids.mismatch(ids) {
                return Err(unusable(&self.template, why));
            }
            layers.push(layer);
        }
        let bottom = if self.on_host {
            Bottom::Host(base.skeleton(home)?)
        } else {
            Bottom::Bare(template::bare(home)?)
        };
        Ok(OpenBoot { layers, bottom })
    }
}

fn missing(template: &TemplateId, id: &LayerId) -> Error {
    fail(ErrorKind::NotFound, "create", format!("layer `{id}` of template `{template}` is gone"))
        .with_hint("make the template again, or create from another one")
}

fn unusable(template: &TemplateId, why: &str) -> Error {
    Error::unsupported("create", format!("template `{template}` in this sandbox"), why.to_owned())
        .with_backend(crate::config::BACKEND)
        .with_hint("import or build the template again as this user, or leave out writable mounts")
}

/// What lies at the bottom.
#[derive(Debug)]
enum Bottom {
    Host(Skeleton),
    Bare(OwnedFd),
}

/// What a launch mounts, opened.
#[derive(Debug)]
pub(crate) struct OpenBoot {
    layers: Vec<Layer>,
    bottom: Bottom,
}

impl OpenBoot {
    /// For the engine; `base` is the host's programs.
    pub(crate) fn root<'a>(&'a self, base: &'a Base) -> Root<'a> {
        let mut lowers: Vec<Lower<'a>> = self.layers.iter().map(Layer::lower).collect();
        let (bottom, host) = match &self.bottom {
            Bottom::Bare(below) => (below, None),
            Bottom::Host(skeleton) => {
                let usr = self.layers.iter().filter_map(Layer::usr_lower).collect();
                let host = HostPrograms { usr, additions: skeleton.usr.as_fd(), roots: &base.roots };
                (&skeleton.root, Some(host))
            }
        };
        lowers.push(bottom.as_fd().into());
        Root { lowers, host }
    }
}
