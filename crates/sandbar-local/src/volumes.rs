use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sandbar_core::{Result, VolumeInfo, VolumeName, VolumeQuery, Volumes};

use crate::aside::aside;
use crate::home::Home;
use crate::provider::Inner;
use crate::store::Volume;

/// How long a listing may take to measure all volumes together; what is not measured by then has no size.
const MEASURE_ALL: Duration = Duration::from_secs(20);
/// How long it may take to measure one: a million files that are in the machine's memory.
const MEASURE_ONE: Duration = Duration::from_secs(5);

/// The volumes part, a type of its own: on the provider its methods would be taken for the provider's.
#[derive(Clone, Debug)]
pub(crate) struct LocalVolumes {
    pub(crate) inner: Arc<Inner>,
}

#[async_trait]
impl Volumes for LocalVolumes {
    async fn create(&self, name: &VolumeName) -> Result<bool> {
        let name = name.clone();
        self.aside("create volume", move |inner| Volume::create(&Home::ensure(&inner.home)?, &name)).await
    }

    async fn exists(&self, name: &VolumeName) -> Result<bool> {
        match Home::open(&self.inner.home)? {
            Some(home) => home.has_volume(name),
            None => Ok(false),
        }
    }

    /// A record that can't be read makes every volume an attached one. A volume that can't be measured within some seconds has no size.
    async fn list(&self, query: VolumeQuery) -> Result<Vec<VolumeInfo>> {
        self.aside("list volumes", move |inner| match Home::open(&inner.home)? {
            Some(home) => list(&home, &query),
            None => Ok(Vec::new()),
        })
        .await
    }

    async fn remove(&self, name: &VolumeName) -> Result<bool> {
        let name = name.clone();
        self.aside("remove volume", move |inner| match Home::open(&inner.home)? {
            Some(home) => Volume::remove(&home, &name),
            None => Ok(false),
        })
        .await
    }
}

impl LocalVolumes {
    /// Work that blocks.
    async fn aside<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        aside(operation, move || work(&inner)).await
    }
}

fn list(home: &Home, query: &VolumeQuery) -> Result<Vec<VolumeInfo>> {
    let VolumeQuery { prefix, attached: wanted } = query;
    let held = home.attached_volumes();
    let end = Instant::now() + MEASURE_ALL;
    let mut infos = Vec::new();
    for name in home.volumes()?.into_iter().filter(|name| name.as_str().starts_with(prefix.as_str())) {
        let attached = held.as_ref().map_or(true, |held| held.contains(&name));
        if wanted.is_some_and(|wanted| wanted != attached) {
            continue;
        }
        let (created_at, size_bytes) = match Volume::open(home, &name, "list volumes") {
            Ok(Some(volume)) => {
                let left = end.saturating_duration_since(Instant::now()).min(MEASURE_ONE);
                let size = if left.is_zero() { None } else { volume.size(left).ok() };
                (Some(volume.document.created_at), size)
            }
            // Removed since.
            Ok(None) => continue,
            // It is there, and that is all that can be said of it.
            Err(_) => (None, None),
        };
        infos.push(VolumeInfo { name, attached, created_at, size_bytes });
    }
    Ok(infos)
}
