use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::fault::Fault;
use super::world::{BACKEND, Held, StoredTemplate, StoredVolume, World};
use crate::{
    CommitOptions, Error, ErrorKind, Result, Template, TemplateId, Templates, VolumeInfo, VolumeName,
    VolumeQuery, Volumes,
};

/// The templates part, a type of its own: on the provider's its methods would be taken for the provider's.
#[derive(Clone, Debug)]
pub(super) struct MemoryTemplates {
    pub(super) world: Arc<World>,
}

/// The volumes part.
#[derive(Clone, Debug)]
pub(super) struct MemoryVolumes {
    pub(super) world: Arc<World>,
}

#[async_trait]
impl Templates for MemoryTemplates {
    async fn commit(&self, options: CommitOptions) -> Result<Template> {
        let CommitOptions { sandbox, template: id, capture_paths, label } = options;
        let machine = self.world.require(&sandbox, "commit")?;
        let mut held = self.world.lock();
        let mut disk = self.world.disk.lock();
        for path in &capture_paths {
            let node = disk.find(machine.root, path.as_bytes()).map_err(|_| {
                Error::not_found("commit", format!("capture path `{path}`")).with_backend(BACKEND)
            })?;
            let on_volume = machine.plan.volumes.iter().any(|volume| path.is_within(&volume.path));
            if on_volume || disk.holds_volume(node) {
                return Err(Error::invalid(
                    "commit",
                    format!("capture path `{path}` is on or holds a volume, and volumes are not captured"),
                )
                .with_backend(BACKEND));
            }
        }
        let root = disk.copy_tree(machine.root);
        let template = Template {
            reference: format!("memory:{root}"),
            created_at: Some(Timestamp::now()),
            size_bytes: Some(disk.bytes_below(root)),
            label,
            in_use: false,
            id: id.clone(),
        };
        let stored = StoredTemplate { template: template.clone(), root };
        if let Some(old) = held.templates.insert(id, stored) {
            disk.drop_tree(old.root);
        }
        drop(disk);
        Ok(observed(&held, &template))
    }

    async fn get(&self, id: &TemplateId) -> Result<Option<Template>> {
        self.world.faults.check(Fault::Templates, "get template", &format!("template `{id}`"))?;
        let held = self.world.lock();
        Ok(held.templates.get(id).map(|stored| observed(&held, &stored.template)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Template>> {
        self.world.faults.check(Fault::Templates, "list templates", "the templates")?;
        let held = self.world.lock();
        let matching =
            held.templates.values().filter(|stored| stored.template.id.as_str().starts_with(prefix));
        Ok(matching.map(|stored| observed(&held, &stored.template)).collect())
    }

    async fn remove(&self, id: &TemplateId) -> Result<bool> {
        self.world.faults.check(Fault::Templates, "remove template", &format!("template `{id}`"))?;
        let mut held = self.world.lock();
        if in_use(&held, id) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "remove template",
                format!("template `{id}` is in use"),
            )
            .with_backend(BACKEND)
            .with_hint("destroy the sandboxes made from it first"));
        }
        let Some(stored) = held.templates.remove(id) else { return Ok(false) };
        self.world.disk.lock().drop_tree(stored.root);
        Ok(true)
    }
}

fn in_use(held: &Held, id: &TemplateId) -> bool {
    held.machines.values().any(|machine| machine.plan.template.as_ref() == Some(id))
}

fn observed(held: &Held, template: &Template) -> Template {
    Template { in_use: in_use(held, &template.id), ..template.clone() }
}

#[async_trait]
impl Volumes for MemoryVolumes {
    async fn create(&self, name: &VolumeName) -> Result<bool> {
        let mut held = self.world.lock();
        if held.volumes.contains_key(name) {
            return Ok(false);
        }
        let root = self.world.disk.lock().new_volume();
        held.volumes.insert(name.clone(), StoredVolume { created_at: Timestamp::now(), root });
        Ok(true)
    }

    async fn exists(&self, name: &VolumeName) -> Result<bool> {
        self.world.faults.check(Fault::Volumes, "look up volume", &format!("volume `{name}`"))?;
        Ok(self.world.lock().volumes.contains_key(name))
    }

    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>> {
        self.world.faults.check(Fault::Volumes, "list volumes", "the volumes")?;
        let VolumeQuery { prefix, attached } = query;
        let held = self.world.lock();
        let disk = self.world.disk.lock();
        let infos = held.volumes.iter().map(|(name, volume)| VolumeInfo {
            name: name.clone(),
            attached: is_attached(&held, name),
            created_at: Some(volume.created_at),
            size_bytes: Some(disk.bytes_below(volume.root)),
        });
        Ok(infos
            .filter(|info| info.name.as_str().starts_with(&prefix))
            .filter(|info| attached.is_none_or(|attached| attached == info.attached))
            .collect())
    }

    async fn remove(&self, name: &VolumeName) -> Result<bool> {
        self.world.faults.check(Fault::Volumes, "remove volume", &format!("volume `{name}`"))?;
        let mut held = self.world.lock();
        if is_attached(&held, name) {
            return Err(Error::new(
                ErrorKind::Conflict,
                "remove volume",
                format!("volume `{name}` is attached"),
            )
            .with_backend(BACKEND)
            .with_hint("destroy the sandboxes that hold it first"));
        }
        let Some(volume) = held.volumes.remove(name) else { return Ok(false) };
        self.world.disk.lock().drop_volume(volume.root);
        Ok(true)
    }
}

fn is_attached(held: &Held, name: &VolumeName) -> bool {
    held.machines.values().any(|machine| machine.plan.volumes.iter().any(|volume| volume.name == *name))
}
