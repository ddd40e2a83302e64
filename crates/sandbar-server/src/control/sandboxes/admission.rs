use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};
use sandbar_core::{ProviderExt as _, Query, SandboxId, SandboxRecord, State};

use crate::app::App;
use crate::error::{ApiError, ApiResult, SHOULD_RETRY};
use crate::known::marked;
use crate::marks::Marks;
use crate::seal::hex;
use crate::store::random;
use crate::tenant::Tenant;

/// Bytes of what tells a creation from others.
const MARK_BYTES: usize = 8;

/// How old the last look at all sandboxes may be for what it found to count, with what happened since: several times what lies between two of them. Beyond
/// that each admission looks itself.
const FRESH: Duration = Duration::from_secs(30);

/// Sandboxes of each tenant that run, or are about to and may not be in a list yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admissions(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// Numbers all that happens.
    next: u64,
    of_tenant: HashMap<String, Page>,
    /// When the last look at all sandboxes began.
    looked: Option<Instant>,
}

#[derive(Debug, Default)]
struct Page {
    /// What is about to run.
    flying: BTreeMap<u64, Entry>,
    /// All that may run, and when that was noted. Some may have ended by themselves: it is never too few.
    running: HashMap<SandboxId, u64>,
    /// All that may be there beside, asleep or stopped.
    asleep: HashMap<SandboxId, u64>,
}

#[derive(Clone, Debug)]
struct Entry {
    mark: String,
    count: usize,
}

/// What was known when a place was taken.
#[derive(Debug)]
struct Before {
    /// What was about to run.
    flying: Vec<Entry>,
    /// How many there may be, those that are about to run among them, unless that was too long ago.
    most: Option<Count>,
    /// When that was.
    at: u64,
}

/// How many sandboxes a tenant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Count {
    running: usize,
    all: usize,
}

/// A place for sandboxes that are about to run; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    all: Admissions,
    tenant: String,
    number: u64,
    /// What the sandbox is to be marked with, so that it is not counted twice once it is listed.
    pub(crate) mark: String,
}

impl Admissions {
    /// A place, and what was known when it was taken.
    fn take(&self, tenant: &str, count: usize, but: Option<&SandboxId>) -> ApiResult<(Admission, Before)> {
        let mark = hex(&random::<MARK_BYTES>()?);
        let mut book = self.open();
        let number = book.turn();
        let is_fresh = book.looked.is_some_and(|at| at.elapsed() < FRESH);
        let page = book.of_tenant.entry(tenant.to_owned()).or_default();
        let flying: Vec<_> = page.flying.values().cloned().collect();
        let (runs, sleeps) = (
            usize::from(but.is_some_and(|id| page.running.contains_key(id))),
            usize::from(but.is_some_and(|id| page.asleep.contains_key(id))),
        );
        let flying_count: usize = flying.iter().map(|entry| entry.count).sum();
        let most = Count {
            running: page.running.len() - runs + flying_count,
            all: page.running.len() - runs + page.asleep.len() - sleeps + flying_count,
        };
        page.flying.insert(number, Entry { mark: mark.clone(), count });
        let admission = Admission { all: self.clone(), tenant: tenant.to_owned(), number, mark };
        Ok((admission, Before { flying, most: is_fresh.then_some(most), at: number }))
    }

    /// To be called before all sandboxes are looked at, for [`Admissions::looked`].
    pub(super) fn look(&self) -> (u64, Instant) {
        (self.open().turn(), Instant::now())
    }

    /// Notes what a look at all sandboxes has found.
    pub(super) fn looked<'a>(
        &self,
        (at, began): (u64, Instant),
        records: impl Iterator<Item = (&'a SandboxRecord, Marks)>,
    ) {
        let mut found: HashMap<String, Found> = HashMap::new();
        for (record, marks) in records.filter(|(_, marks)| !marks.is_internal) {
            found.entry(marks.tenant).or_default().add(record);
        }
        let mut book = self.open();
        for (tenant, page) in &mut book.of_tenant {
            page.replace(at, found.remove(tenant).unwrap_or_default());
        }
        for (tenant, found) in found {
            book.of_tenant.entry(tenant).or_default().replace(at, found);
        }
        book.of_tenant.retain(|_, page| !page.is_empty());
        book.looked = Some(began);
    }

    /// To be called when a sandbox was destroyed: its place is free.
    pub(super) fn ended(&self, tenant: &str, id: &SandboxId) {
        if let Some(page) = self.open().of_tenant.get_mut(tenant) {
            page.running.remove(id);
            page.asleep.remove(id);
        }
    }

    /// To be called when a sandbox was put to sleep: another may run.
    pub(super) fn sleeps(&self, tenant: &str, id: &SandboxId) {
        let mut book = self.open();
        let at = book.turn();
        let page = book.of_tenant.entry(tenant.to_owned()).or_default();
        page.running.remove(id);
        page.asleep.insert(id.clone(), at);
    }

    fn open(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Page {
    /// Takes what a look found that began at `at`. What was noted since then it may not have seen.
    fn replace(&mut self, at: u64, found: Found) {
        self.running.retain(|_, noted| *noted > at);
        self.asleep.retain(|_, noted| *noted > at);
        for id in found.running {
            if !self.asleep.contains_key(&id) {
                self.running.entry(id).or_insert(at);
            }
        }
        for id in found.asleep {
            if !self.running.contains_key(&id) {
                self.asleep.entry(id).or_insert(at);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.flying.is_empty() && self.running.is_empty() && self.asleep.is_empty()
    }
}

impl Admission {
    /// Notes that a sandbox runs for which this was taken.
    pub(super) fn runs(&self, id: &SandboxId) {
        let mut book = self.all.open();
        let at = book.turn();
        let page = book.of_tenant.entry(self.tenant.clone()).or_default();
        page.asleep.remove(id);
        page.running.insert(id.clone(), at);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut book = self.all.open();
        if let Some(page) = book.of_tenant.get_mut(&self.tenant) {
            page.flying.remove(&self.number);
            if page.is_empty() {
                book.of_tenant.remove(&self.tenant);
            }
        }
    }
}

/// Sandboxes of a tenant that a look has found.
#[derive(Debug, Default)]
struct Found {
    running: Vec<SandboxId>,
    asleep: Vec<SandboxId>,
}

impl Found {
    fn add(&mut self, record: &SandboxRecord) {
        match record.state {
            State::Creating | State::Running => self.running.push(record.id.clone()),
            State::Destroying => {}
            _ => self.asleep.push(record.id.clone()),
        }
    }
}

impl App {
    /// Lets a tenant have so many more sandboxes that run. Of several that ask at the same time those before count, so that each place is given once and
    /// none stays empty. `but` is not counted: it is what is to run.
    ///
    /// The backend is asked only if what is known leaves no room, or is too old.
    pub(super) async fn admit(
        &self,
        tenant: &Tenant,
        count: usize,
        but: Option<&SandboxId>,
    ) -> ApiResult<Admission> {
        let size = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = self.config.limits;
        let most_running = size(limits.sandboxes);
        let most = most_running.saturating_add(size(limits.sleeping));
        let fits = |had: Count| had.running + count <= most_running && had.all + count <= most;
        let (admission, before) = self.admissions.take(&tenant.id, count, but)?;
        if before.most.is_some_and(fits) {
            return Ok(admission);
        }
        let query = Query::new().with_labels(Marks::tenant_query(&tenant.id)?);
        let records = self.provider.list_all(query).await?;
        let (mut found, mut others, mut listed) = (Found::default(), Found::default(), HashSet::new());
        for (record, marks) in marked(&records).filter(|(_, marks)| !marks.is_internal) {
            found.add(record);
            if Some(&record.id) != but {
                others.add(record);
                listed.extend(marks.creation);
            }
        }
        if let Some(page) = self.admissions.open().of_tenant.get_mut(&tenant.id) {
            page.replace(before.at, found);
        }
        let unlisted = before.flying.iter().filter(|entry| !listed.contains(&entry.mark));
        let running = others.running.len() + unlisted.map(|entry| entry.count).sum::<usize>();
        let had = Count { running, all: running + others.asleep.len() };
        if fits(had) {
            return Ok(admission);
        }
        let message = if had.running + count > most_running {
            format!(
                "you have reached the maximum number of concurrent E2B sandboxes ({most_running}): kill or pause some, or \
                 have whoever runs this server raise the limit of a key"
            )
        } else {
            format!(
                "you have {} sandboxes, of which {} are paused, and {most} in all is the limit of a key: kill some that are paused",
                had.all,
                others.asleep.len()
            )
        };
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, message);
        Err(error.with_header(SHOULD_RETRY, HeaderValue::from_static("false")))
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
