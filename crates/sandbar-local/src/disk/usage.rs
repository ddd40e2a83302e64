use sandbar_core::Result;
use sandbar_engine::{IdMode, LAYERS_FOLDER};

use super::measure::Meter;
use crate::aside::aside;
use crate::home::{Folder, Home, USAGE_FILES};
use crate::provider::LocalProvider;
use crate::store::{LAYERS, LayerDocument, VOLUMES, VolumeDocument};
use crate::teardown;

/// What the data folder takes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Sandboxes, and what they wrote to themselves.
    pub sandboxes: DiskShare,
    /// Layers, which sandboxes and templates share; each counts once.
    pub layers: DiskShare,
    /// Templates: what tells of them, and what `host` is built of. Their files are layers.
    pub templates: DiskShare,
    /// Volumes and their content.
    pub volumes: DiskShare,
    /// Logs and records, those of sandboxes and that of ended ones; their number is that of files.
    pub logs: DiskShare,
    /// What is on its way out, and what somebody began and did not end.
    pub trash: DiskShare,
    /// Emptied folders that are kept for the next sandboxes.
    pub pool: DiskShare,
}

/// What a part of it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskShare {
    /// How many there are; `None` where that could not be seen.
    pub count: Option<u64>,
    /// Bytes on disk; `None` where not all could be measured.
    pub bytes: Option<u64>,
}

impl DiskShare {
    const NOTHING: Self = Self { count: Some(0), bytes: Some(0) };

    fn add(&mut self, bytes: Option<u64>) {
        self.add_many(Some(1), bytes);
    }

    /// What is not known makes the sum unknown.
    fn add_many(&mut self, count: Option<u64>, bytes: Option<u64>) {
        let sum = |old: Option<u64>, new: Option<u64>| Some(old?.saturating_add(new?));
        self.count = sum(self.count, count);
        self.bytes = sum(self.bytes, bytes);
    }

    fn unknown(&mut self) {
        *self = Self { count: None, bytes: None };
    }
}

impl LocalProvider {
    /// What the data folder takes on disk. A look: it changes nothing, and what changes meanwhile may be counted or not. Takes some minutes at most;
    /// what could not be measured by then is `None`.
    pub async fn disk_usage(&self) -> Result<DiskUsage> {
        let path = self.home().to_owned();
        let look = aside("measure disk usage", move || Ok(Home::open(&path)?.as_ref().map(measure)));
        Ok(look.await?.unwrap_or_else(nothing))
    }
}

/// Where there is no data folder yet.
fn nothing() -> DiskUsage {
    let nothing = DiskShare::NOTHING;
    DiskUsage {
        sandboxes: nothing,
        layers: nothing,
        templates: nothing,
        volumes: nothing,
        logs: nothing,
        trash: nothing,
        pool: nothing,
    }
}

fn measure(home: &Home) -> DiskUsage {
    let meter = Meter::new(home);
    let any = teardown::any_mode();
    let mut usage = nothing();
    sandboxes(home, &meter, &any, &mut usage);
    match home.layers() {
        Ok(ids) => ids.iter().for_each(|id| {
            let ids = LayerDocument::read(home, id)
                .ok()
                .flatten()
                .map_or_else(|| any.clone(), |it| it.ids.to_mode());
            usage.layers.add(meter.tree(&format!("{LAYERS}/{id}"), &ids));
        }),
        Err(_) => usage.layers.unknown(),
    }
    match home.templates() {
        Ok(ids) => usage.templates.add_many(u64::try_from(ids.len()).ok(), meter.tree("templates", &any)),
        Err(_) => usage.templates.unknown(),
    }
    match home.volumes() {
        Ok(names) => names.iter().for_each(|name| {
            let ids = VolumeDocument::read(home, name)
                .ok()
                .flatten()
                .map_or_else(|| any.clone(), |it| it.ids.to_mode());
            usage.volumes.add(meter.tree(&format!("{VOLUMES}/{name}"), &ids));
        }),
        Err(_) => usage.volumes.unknown(),
    }
    for name in USAGE_FILES {
        match meter.file(name) {
            Some(0) => {}
            bytes => usage.logs.add(bytes),
        }
    }
    let is_hidden = |name: &String| name.starts_with('.');
    each(home, &meter, "trash", &any, |_| true, &mut usage.trash);
    each(home, &meter, VOLUMES, &any, is_hidden, &mut usage.trash);
    each(home, &meter, LAYERS, &any, is_hidden, &mut usage.trash);
    each(home, &meter, "pool", &any, |_| true, &mut usage.pool);
    usage
}

fn sandboxes(home: &Home, meter: &Meter<'_>, any: &IdMode, usage: &mut DiskUsage) {
    let Ok(ids) = home.ids() else {
        usage.sandboxes.unknown();
        usage.logs.unknown();
        return;
    };
    for id in ids {
        let record = match Folder::open(home, &id) {
            Ok(Some(folder)) => folder.record().ok().flatten(),
            // Gone since.
            Ok(None) => continue,
            Err(_) => None,
        };
        let ids = record.map_or_else(|| any.clone(), |record| record.private.ids);
        let place = format!("sandboxes/{id}");
        usage.sandboxes.add(meter.tree(&format!("{place}/{LAYERS_FOLDER}"), &ids));
        let files = meter.files(&place);
        usage.logs.add_many(files.map(|(_, count)| count), files.map(|(bytes, _)| bytes));
    }
}

fn each(
    home: &Home,
    meter: &Meter<'_>,
    folder: &str,
    ids: &IdMode,
    counts: impl Fn(&String) -> bool,
    share: &mut DiskShare,
) {
    match home.entries(folder) {
        Ok(names) => names.iter().filter(|name| counts(name)).for_each(|name| {
            share.add(meter.tree(&format!("{folder}/{name}"), ids));
        }),
        Err(_) => share.unknown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_makes_the_sum_unknown() {
        let mut share = DiskShare::NOTHING;
        share.add(Some(5));
        assert_eq!(share, DiskShare { count: Some(1), bytes: Some(5) });
        share.add(None);
        share.add(Some(5));
        assert_eq!(share, DiskShare { count: Some(3), bytes: None });
    }

    #[test]
    fn a_data_folder_is_measured_by_its_parts() {
        let scratch = tempfile::tempdir().unwrap();
        let home = Home::ensure(&scratch.path().join("home")).unwrap();
        let empty = measure(&home);
        assert_eq!(empty.volumes, DiskShare::NOTHING);
        let name = sandbar_core::VolumeName::new("v").unwrap();
        crate::store::Volume::create(&home, &name).unwrap();
        std::fs::write(home.path().join("volumes/v/data/f"), vec![1; 1 << 20]).ok();
        std::fs::create_dir(home.path().join("trash/x")).unwrap();
        std::fs::write(home.path().join("trash/x/f"), vec![1; 1 << 16]).unwrap();
        let usage = measure(&home);
        assert_eq!((usage.volumes.count, usage.trash.count), (Some(1), Some(1)));
        assert!(usage.trash.bytes.is_some_and(|bytes| bytes >= 1 << 16), "{usage:?}");
        assert!(usage.volumes.bytes.is_some_and(|bytes| bytes > 0), "{usage:?}");
    }
}
