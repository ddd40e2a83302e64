//! Volumes, where the account has them.

use std::collections::BTreeSet;

use async_trait::async_trait;
use futures::TryStreamExt;
use http::StatusCode;
use sandbar_core::{Error, ErrorKind, Result, VolumeInfo, VolumeName, VolumeQuery, Volumes};
use sandbar_wire::e2b::{ListedSandbox, Metadata, SandboxState, Volume};

use crate::E2bProvider;
use crate::api::{is_absent, refusal};
use crate::config::BACKEND;
use crate::marks::Marks;

/// Volumes that sandboxes hold, asleep ones included.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    These(BTreeSet<String>),
    /// A sandbox does not tell what it holds, so it may hold any.
    Unknown,
}

impl Held {
    fn by(rows: &[ListedSandbox]) -> Self {
        let mut names = BTreeSet::new();
        for row in rows {
            let marks = row.metadata.as_ref().map(Marks::of).unwrap_or_default();
            match &row.volume_mounts {
                Some(mounts) => names.extend(mounts.iter().map(|mount| mount.name.clone())),
                None if marks.is_ours && !marks.has_volumes => {}
                None => return Self::Unknown,
            }
        }
        Self::These(names)
    }

    fn holds(&self, name: &str) -> bool {
        match self {
            Self::These(names) => names.contains(name),
            Self::Unknown => true,
        }
    }
}

#[async_trait]
impl Volumes for E2bProvider {
    async fn create(&self, name: &VolumeName) -> Result<bool> {
        const OPERATION: &str = "create volume";
        if self.volume(OPERATION, name).await?.is_some() {
            return Ok(false);
        }
        let response = self.api.create_volume(OPERATION, name.as_str()).await?;
        if response.status() == StatusCode::CONFLICT && self.volume(OPERATION, name).await?.is_some() {
            // Somebody else made it meanwhile.
            return Ok(false);
        }
        if response.status().is_success() { Ok(true) } else { Err(refusal(&response)) }
    }

    async fn exists(&self, name: &VolumeName) -> Result<bool> {
        Ok(self.volume("look for volume", name).await?.is_some())
    }

    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>> {
        const OPERATION: &str = "list volumes";
        let (volumes, held) = futures::try_join!(self.api.volumes(OPERATION), self.held(OPERATION))?;
        let wanted = volumes.into_iter().filter(|volume| volume.name.starts_with(&query.prefix));
        let infos = wanted.map(|volume| {
            let attached = held.holds(&volume.name);
            let name = VolumeName::new(volume.name).map_err(|error| {
                Error::new(ErrorKind::Protocol, OPERATION, "the API answered a volume's name that is none")
                    .with_backend(BACKEND)
                    .with_source(error)
            })?;
            Ok(VolumeInfo { name, attached, created_at: None, size_bytes: None })
        });
        let infos = infos.filter(|info: &Result<VolumeInfo>| {
            info.as_ref().map_or(true, |info| query.attached.is_none_or(|wanted| wanted == info.attached))
        });
        infos.collect()
    }

    async fn remove(&self, name: &VolumeName) -> Result<bool> {
        const OPERATION: &str = "remove volume";
        let Some(volume) = self.volume(OPERATION, name).await? else { return Ok(false) };
        if self.held(OPERATION).await?.holds(name.as_str()) {
            let message = format!("volume `{name}` is attached to a sandbox, or may be");
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message)
                .with_backend(BACKEND)
                .with_resource(format!("volume `{name}`"))
                .with_hint("destroy the sandboxes that have it first"));
        }
        let response = self.api.remove_volume(OPERATION, &volume.volume_id).await?;
        if is_absent(&response) {
            return Ok(response.attempts() > 1);
        }
        if response.status().is_success() { Ok(true) } else { Err(refusal(&response)) }
    }
}

impl E2bProvider {
    async fn volume(&self, operation: &'static str, name: &VolumeName) -> Result<Option<Volume>> {
        Ok(self.api.volumes(operation).await?.into_iter().find(|volume| volume.name == name.as_str()))
    }

    async fn held(&self, operation: &'static str) -> Result<Held> {
        let both = [SandboxState::Running, SandboxState::Paused];
        let rows: Vec<_> = self.api.list(operation, &Metadata::new(), &both).try_collect().await?;
        Ok(Held::by(&rows))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn row(metadata: &Value, mounts: &Value) -> ListedSandbox {
        serde_json::from_value(json!({
            "templateID": "t", "sandboxID": "i1", "clientID": "c", "startedAt": "", "endAt": "", "cpuCount": 1,
            "memoryMB": 1, "diskSizeMB": 1, "state": "paused", "envdVersion": "0.6.13", "metadata": metadata,
            "volumeMounts": mounts,
        }))
        .unwrap()
    }

    #[test]
    fn a_sandbox_that_does_not_tell_may_hold_any() {
        let (ours, others) = (json!({"sandbarVersion": "1"}), json!({}));
        let with = row(&ours, &json!([{"name": "v", "path": "/v"}]));
        assert_eq!(Held::by(&[]), Held::These(BTreeSet::new()));
        assert_eq!(Held::by(&[row(&ours, &Value::Null)]), Held::These(BTreeSet::new()));
        let told = [row(&others, &json!([])), with.clone()];
        assert_eq!(Held::by(&told), Held::These(["v".to_owned()].into()));
        let silent = json!({"sandbarVersion": "1", "sandbarVolumes": "true"});
        for untold in [row(&others, &Value::Null), row(&silent, &Value::Null)] {
            let held = Held::by(&[with.clone(), untold]);
            assert!(held == Held::Unknown && held.holds("any"));
        }
    }
}
