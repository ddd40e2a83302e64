use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, renameat, unlinkat};
use sandbar_core::{Result, SandboxId, State};
use sandbar_engine::IdMode;

use super::measure::Meter;
use crate::aside::aside;
use crate::error::{found, io_error};
use crate::home::{Folder, Home};
use crate::id::random_text;
use crate::observe::{is_over, is_overdue};
use crate::provider::LocalProvider;
use crate::store::{Hold, LAYERS, LayerId, StoreLock, VOLUMES, lock_unfinished};
use crate::{janitor, teardown};

const OPERATION: &str = "prune";
/// Results of build steps, by what they depend on.
const CACHE: &str = "layers/cache";
const POOL: &str = "pool";
const SKELETONS: &str = "templates/host";
/// What something is called while it is being made.
const UNFINISHED: &str = ".new-";
/// What something is called while it is being removed.
const REMOVED: &str = ".old-";

/// How to tidy up.
#[derive(Clone, Copy, Debug, Default)]
pub struct PruneOptions {
    /// Whether to do it, or to say what would be done.
    pub mode: PruneMode,
}

/// Whether to do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PruneMode {
    /// Say what would be removed, and change nothing.
    #[default]
    DryRun,
    /// Remove it.
    Remove,
}

impl PruneOptions {
    /// A dry run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether to do it.
    pub fn with_mode(mut self, mode: PruneMode) -> Self {
        self.mode = mode;
        self
    }
}

/// What can go, and what went.
#[derive(Clone, Debug, Default)]
pub struct PruneReport {
    /// Each thing that nobody needs.
    pub items: Vec<Prunable>,
    /// What could not be looked at, so that nothing of its kind was touched.
    pub problems: Vec<String>,
}

/// Something that nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prunable {
    /// What it is.
    pub kind: PruneKind,
    /// Its id or name.
    pub name: String,
    /// Bytes that it takes on disk; `None` where that could not be measured.
    pub bytes: Option<u64>,
    /// Whether it is gone; never in a dry run.
    pub removed: bool,
    /// Why it is still there, where it was to be removed.
    pub problem: Option<String>,
}

/// Kinds of things that nobody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PruneKind {
    /// A sandbox whose time is over, or whose owner is gone.
    Expired,
    /// What a creation or a destruction that did not end left.
    Leftover,
    /// A destroyed sandbox that is not deleted yet.
    Trash,
    /// A layer, a volume or a template that somebody began to make or to remove and does not any more.
    Unfinished,
    /// The remembered result of a build's step.
    CachedStep,
    /// A layer that no template and no sandbox names.
    Layer,
    /// Emptied folders that were kept for the next sandbox.
    Pool,
}

impl PruneKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Leftover => "leftover",
            Self::Trash => "trash",
            Self::Unfinished => "unfinished",
            Self::CachedStep => "cached-step",
            Self::Layer => "layer",
            Self::Pool => "pool",
        }
    }
}

impl PruneReport {
    /// Bytes of all of it that could be measured.
    pub fn bytes(&self) -> u64 {
        self.items.iter().filter_map(|item| item.bytes).fold(0, u64::saturating_add)
    }
}

impl LocalProvider {
    /// Finds what nobody needs any more in the data folder, and removes it where that is asked for: expired sandboxes, what was left of others,
    /// unfinished and unused layers, remembered build steps, kept folders. Never a volume, a template, or a sandbox that has time left; what can't be
    /// looked at counts as needed.
    pub async fn prune(&self, options: PruneOptions) -> Result<PruneReport> {
        let path = self.home().to_owned();
        aside(OPERATION, move || {
            let Some(home) = Home::open(&path)? else { return Ok(PruneReport::default()) };
            let mut pruning =
                Pruning { home: &home, meter: Meter::new(&home), options, report: PruneReport::default() };
            pruning.sandboxes();
            pruning.trash();
            pruning.unfinished();
            pruning.layers();
            pruning.pool();
            Ok(pruning.report)
        })
        .await
    }
}

struct Pruning<'a> {
    home: &'a Home,
    meter: Meter<'a>,
    options: PruneOptions,
    report: PruneReport,
}

impl Pruning<'_> {
    /// Notes one, and removes it where that is wanted; `false` of the removal means that somebody else has it.
    fn item(
        &mut self,
        kind: PruneKind,
        name: &str,
        bytes: Option<u64>,
        remove: impl FnOnce(&Home) -> Result<bool>,
    ) {
        let mut item = Prunable { kind, name: name.to_owned(), bytes, removed: false, problem: None };
        if self.options.mode == PruneMode::Remove {
            match remove(self.home) {
                Ok(true) => item.removed = true,
                Ok(false) => item.problem = Some("somebody is at it".to_owned()),
                Err(error) => item.problem = Some(error.message().to_owned()),
            }
        }
        self.report.items.push(item);
    }

    fn problem(&mut self, what: &str, cause: &dyn std::fmt::Display) {
        self.report.problems.push(format!("{what}: {cause}"));
    }

    fn sandboxes(&mut self) {
        let ids = match self.home.ids() {
            Ok(ids) => ids,
            Err(cause) => return self.problem("sandboxes", &cause),
        };
        for id in ids {
            if !janitor::is_left(self.home, &id) {
                continue;
            }
            let looked = Folder::open(self.home, &id).map(|folder| folder.map(|folder| folder.record()));
            // Gone since, or not to be looked at any more: not ours to touch.
            let Ok(Some(Ok(record))) = looked else { continue };
            let is_expired = record.as_ref().is_some_and(|record| {
                let began_and_did_not_end = matches!(record.state, State::Creating | State::Destroying);
                is_overdue(record)
                    || (!began_and_did_not_end && is_over(record).is_ok_and(|why| why.is_some()))
            });
            let kind = if is_expired { PruneKind::Expired } else { PruneKind::Leftover };
            let ids = record.map_or_else(teardown::any_mode, |record| record.private.ids);
            let bytes = self.meter.tree(&format!("sandboxes/{id}"), &ids);
            self.item(kind, id.as_str(), bytes, |home| Ok(janitor::remove(home, &id)?.is_some()));
        }
    }

    fn trash(&mut self) {
        let ids = match self.home.trashed() {
            Ok(ids) => ids,
            Err(cause) => return self.problem("trash", &cause),
        };
        for id in ids
            .into_iter()
            .filter(|id| self.claim(&format!("trash/{id}")).is_some())
            .collect::<Vec<SandboxId>>()
        {
            let bytes = self.meter.tree(&format!("trash/{id}"), &teardown::any_mode());
            self.item(PruneKind::Trash, id.as_str(), bytes, |home| {
                teardown::empty_trash(home, &id)?;
                Ok(!home.is_trashed(&id).unwrap_or(true))
            });
        }
    }

    fn unfinished(&mut self) {
        let any = teardown::any_mode();
        for (folder, ids) in [(LAYERS, &any), (VOLUMES, &any), (SKELETONS, &IdMode::Single)] {
            let names = match self.home.entries(folder) {
                Ok(names) => names,
                Err(cause) => {
                    self.problem(folder, &cause);
                    continue;
                }
            };
            let is_wreck = |name: &String| name.starts_with(UNFINISHED) || name.starts_with(REMOVED);
            for name in names.iter().filter(|name| is_wreck(name)) {
                let place = format!("{folder}/{name}");
                let Some(_claim) = self.claim(&place) else { continue };
                let bytes = self.meter.tree(&place, ids);
                self.item(PruneKind::Unfinished, &place, bytes, |home| remove(home, folder, name, ids));
            }
        }
    }

    /// Remembered steps, and layers that nothing but these names. Nobody begins to use a layer meanwhile.
    fn layers(&mut self) {
        let lock = match self.options.mode {
            PruneMode::DryRun => None,
            PruneMode::Remove => match StoreLock::take(self.home, Hold::Alone, OPERATION) {
                Ok(lock) => Some(lock),
                Err(error) => return self.problem("layers", &error.message()),
            },
        };
        if let Some(lock) = &lock
            && let Err(error) = self.home.remove_dead_pins(lock, OPERATION)
        {
            self.problem("builds that ended", &error.message());
        }
        let seen = self.home.layers_held().and_then(|held| Ok((held, self.home.layers()?)));
        let (held, all) = match seen {
            Ok(seen) => seen,
            Err(error) => return self.problem("layers", &error.message()),
        };
        match self.home.entries(CACHE) {
            Ok(names) => names.iter().for_each(|name| self.cached_step(name)),
            Err(cause) => return self.problem("remembered steps", &cause),
        }
        let unneeded = all.into_iter().filter(|id| !held.contains(id)).map(|id| {
            let place = if lock.is_some() { set_aside(self.home, &id) } else { Ok(id.to_string()) };
            (id, place)
        });
        let unneeded: Vec<_> = unneeded.collect();
        // They have no names any more: nobody has to wait while their files go.
        drop(lock);
        let any = teardown::any_mode();
        for (id, place) in unneeded {
            match place {
                Ok(place) => {
                    let bytes = self.meter.tree(&format!("{LAYERS}/{place}"), &any);
                    self.item(PruneKind::Layer, id.as_str(), bytes, |home| {
                        remove(home, LAYERS, &place, &any)
                    });
                }
                Err(error) => self.item(PruneKind::Layer, id.as_str(), None, |_| Err(error)),
            }
        }
    }

    fn cached_step(&mut self, name: &str) {
        let place = format!("{CACHE}/{name}");
        let bytes = self.meter.file(&place);
        self.item(PruneKind::CachedStep, name.trim_end_matches(".json"), bytes, |home| {
            let gone = found(unlinkat(home, place.as_str(), AtFlags::empty()));
            gone.map(|_| true).map_err(|cause| io_error(OPERATION, &place, cause))
        });
    }

    fn pool(&mut self) {
        let names = match self.home.entries(POOL) {
            Ok(names) => names,
            Err(cause) => return self.problem("kept folders", &cause),
        };
        let any = teardown::any_mode();
        for name in names {
            let bytes = self.meter.tree(&format!("{POOL}/{name}"), &any);
            self.item(PruneKind::Pool, &name, bytes, |home| {
                // Out of reach first: a new sandbox may take it at any moment.
                let aside = format!("{REMOVED}{}", random_text(12).unwrap_or_default());
                match found(renameat(home, format!("{POOL}/{name}"), home, format!("{POOL}/{aside}"))) {
                    Ok(Some(())) => remove(home, POOL, &aside, &any),
                    Ok(None) => Ok(false),
                    Err(cause) => Err(io_error(OPERATION, &format!("`{POOL}/{name}`"), cause)),
                }
            });
        }
    }

    /// Takes the folder at `place` from those who make or remove it; `None` where somebody does, or where that can't be seen.
    fn claim(&self, place: &str) -> Option<OwnedFd> {
        found(lock_unfinished(self.home, place)).ok()??
    }
}

fn remove(home: &Home, folder: &str, name: &str, ids: &IdMode) -> Result<bool> {
    home.remove_tree(folder, name, ids)
        .map(|()| true)
        .map_err(|cause| io_error(OPERATION, &format!("`{folder}/{name}`"), cause))
}

/// Takes its name from a layer; what it is called now. One that is interrupted here is found by the next command that writes.
fn set_aside(home: &Home, id: &LayerId) -> Result<String> {
    let broken = |cause| io_error(OPERATION, &format!("layer `{id}`"), cause);
    let aside = format!("{UNFINISHED}{}", random_text(12).map_err(broken)?);
    renameat(home, format!("{LAYERS}/{id}"), home, format!("{LAYERS}/{aside}")).map_err(broken)?;
    Ok(aside)
}
