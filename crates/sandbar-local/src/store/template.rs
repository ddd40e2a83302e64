use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::Errno;
use sandbar_core::{ErrorKind, Result, TemplateId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Boot, LayerId, StoreLock, TemplateDefaults};
use crate::error::{fail, found, io_error};
use crate::home::Home;
use crate::template;

/// The folder of all templates, in the data folder; one more folder in it for each, named by its id.
const TEMPLATES: &str = "templates";
/// The file in a template's folder that tells of it.
const DOCUMENT: &str = "template.json";
/// Longest document that is read, in bytes.
const MAX_DOCUMENT: usize = 4 << 20;
/// Longest label, in bytes: as of a sandbox'.
const MAX_LABEL: usize = 4096;
/// The form of a template's document.
const VERSION: u32 = 1;

/// A template as it stands on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TemplateDocument {
    pub(crate) version: u32,
    pub(crate) id: TemplateId,
    pub(crate) created_at: Timestamp,
    pub(crate) label: Option<String>,
    /// Bytes of its own layers; `None` where nobody counted them.
    pub(crate) size_bytes: Option<u64>,
    /// Whether it lies over the host's own programs.
    pub(crate) on_host: bool,
    /// The topmost first.
    pub(crate) layers: Vec<LayerId>,
    pub(crate) defaults: TemplateDefaults,
    /// Where it came from, for people.
    pub(crate) origin: String,
    /// Keys of a newer version.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl TemplateDocument {
    /// Of a template that is made now.
    pub(crate) fn new(id: TemplateId, boot: Boot, origin: String) -> Self {
        let Boot { template: _, on_host, layers, defaults } = boot;
        Self {
            version: VERSION,
            id,
            created_at: crate::home::now(),
            label: None,
            size_bytes: None,
            on_host,
            layers,
            defaults,
            origin,
            rest: Map::new(),
        }
    }

    /// What a sandbox of it boots from.
    pub(crate) fn boot(&self) -> Boot {
        Boot {
            template: self.id.clone(),
            on_host: self.on_host,
            layers: self.layers.clone(),
            defaults: self.defaults.clone(),
        }
    }

    /// Reads it; `None` means that there is positively no such template.
    pub(crate) fn read(home: &Home, id: &TemplateId) -> Result<Option<Self>> {
        home.read_document(&format!("{}/{DOCUMENT}", place(id)), MAX_DOCUMENT, VERSION)
    }

    /// Writes it in place of the one before. Its layers have to be there.
    pub(crate) fn publish(&self, home: &Home, lock: &StoreLock) -> Result<()> {
        debug_assert!(lock.is_alone());
        let resource = format!("template `{}`", self.id);
        if self.id.as_str() == template::HOST {
            let why = format!("`{}` is the built-in template", template::HOST);
            return Err(fail(ErrorKind::InvalidInput, "make a template", why).with_hint("choose another id"));
        }
        self.defaults.check("make a template")?;
        if let Some(length) = self.label.as_ref().map(String::len).filter(|length| *length > MAX_LABEL) {
            let why = format!("the template's label takes {length} bytes, and {MAX_LABEL} are the most");
            return Err(fail(ErrorKind::InvalidInput, "make a template", why));
        }
        for layer in &self.layers {
            if !home.has_layer(layer)? {
                return Err(fail(
                    ErrorKind::Unexpected,
                    "make a template",
                    format!("layer `{layer}` is gone"),
                ));
            }
        }
        let folder = place(&self.id);
        match mkdirat(home, &folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(cause) => return Err(io_error("make a template", &resource, cause)),
        }
        let text =
            serde_json::to_vec_pretty(self).map_err(|cause| io_error("make a template", &resource, cause))?;
        home.replace_at(&format!("{folder}/{DOCUMENT}"), &text, MAX_DOCUMENT)
            .map_err(|cause| io_error("make a template", &resource, cause))
    }

    /// Takes it away; `false` means that it was positively absent. Whether it is in use is the caller's to look at before.
    pub(crate) fn unpublish(home: &Home, id: &TemplateId, lock: &StoreLock) -> Result<bool> {
        debug_assert!(lock.is_alone());
        let broken = |cause: Errno| io_error("remove", &format!("template `{id}`"), cause);
        let was_there = found(unlinkat(home, format!("{}/{DOCUMENT}", place(id)), AtFlags::empty()))
            .map_err(broken)?
            .is_some();
        found(unlinkat(home, place(id), AtFlags::REMOVEDIR)).map_err(broken)?;
        Ok(was_there)
    }
}

impl Home {
    /// The ids of all templates but the built-in one. A folder without a document is what an interrupted command left, and no template.
    pub(crate) fn templates(&self) -> Result<Vec<TemplateId>> {
        let names = self.entries(TEMPLATES).map_err(|cause| {
            io_error("list templates", &format!("`{}/{TEMPLATES}`", self.path().display()), cause)
        })?;
        let names = names.into_iter().filter(|name| name != template::HOST);
        Ok(names.filter_map(|name| TemplateId::new(name.replace(SLASH, "/")).ok()).collect())
    }
}

/// What stands for `/` in the name of a template's folder: no id has it.
const SLASH: &str = "%";

/// Where the folder of a template is, from the data folder.
fn place(id: &TemplateId) -> String {
    format!("{TEMPLATES}/{}", id.as_str().replace('/', SLASH))
}

#[cfg(test)]
mod tests {
    use super::super::{Hold, StoreIds};
    use super::*;
    use crate::store::Staged;

    #[test]
    fn templates_come_go_and_are_replaced_whatever_their_ids_hold() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let lock = StoreLock::take(&home, Hold::Alone, "test").unwrap();
        let layer = LayerId::random().unwrap();
        let id = TemplateId::new("team/app:1.0/../../x").unwrap();
        let boot = Boot { layers: vec![layer.clone()], ..Boot::host() };
        let document = TemplateDocument::new(id.clone(), boot, "a test".into());
        assert_eq!(document.publish(&home, &lock).unwrap_err().kind(), ErrorKind::Unexpected);
        let staged = Staged::new(&home, StoreIds::Single).unwrap();
        staged.make_part("root").unwrap();
        assert!(staged.finish(&layer, None).unwrap());
        document.publish(&home, &lock).unwrap();
        TemplateDocument { label: Some("again".into()), ..document }.publish(&home, &lock).unwrap();
        assert_eq!(home.templates().unwrap(), std::slice::from_ref(&id));
        assert_eq!(TemplateDocument::read(&home, &id).unwrap().unwrap().label.as_deref(), Some("again"));
        assert!(home.unused_layers().unwrap().is_empty());
        assert!(TemplateDocument::unpublish(&home, &id, &lock).unwrap());
        assert!(!TemplateDocument::unpublish(&home, &id, &lock).unwrap());
        assert_eq!(home.remove_unused_layers(&lock, 9).unwrap(), 1);
        let host = TemplateDocument::new(template::host_id(), Boot::host(), String::new());
        assert_eq!(host.publish(&home, &lock).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
