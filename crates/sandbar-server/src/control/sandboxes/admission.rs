use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, StatusCode};
use sandbar_core::{ProviderExt as _, Query, SandboxId, State};

use crate::app::App;
use crate::error::{ApiError, ApiResult, SHOULD_RETRY};
use crate::marks::Marks;
use crate::seal::hex;
use crate::store::random;
use crate::tenant::Tenant;

/// Bytes of what tells a creation from others.
const MARK_BYTES: usize = 8;

/// Sandboxes of each tenant that are about to run and may not be in a list yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admissions(Arc<Mutex<Flying>>);

#[derive(Debug, Default)]
struct Flying {
    next: u64,
    of_tenant: HashMap<String, BTreeMap<u64, Entry>>,
}

#[derive(Clone, Debug)]
struct Entry {
    mark: String,
    count: usize,
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
    /// A place, and what was about to run when it was taken.
    fn take(&self, tenant: &str, count: usize) -> ApiResult<(Admission, Vec<Entry>)> {
        let mark = hex(&random::<MARK_BYTES>()?);
        let mut flying = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flying.next += 1;
        let number = flying.next;
        let entries = flying.of_tenant.entry(tenant.to_owned()).or_default();
        let earlier = entries.values().cloned().collect();
        entries.insert(number, Entry { mark: mark.clone(), count });
        Ok((Admission { all: self.clone(), tenant: tenant.to_owned(), number, mark }, earlier))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut flying = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = flying.of_tenant.get_mut(&self.tenant) {
            entries.remove(&self.number);
            if entries.is_empty() {
                flying.of_tenant.remove(&self.tenant);
            }
        }
    }
}

impl App {
    /// Lets a tenant have so many more sandboxes that run. Of several that ask at the same time those before count, so that each place is given once and
    /// none stays empty. `but` is not counted: it is what is to run.
    pub(super) async fn admit(
        &self,
        tenant: &Tenant,
        count: usize,
        but: Option<&SandboxId>,
    ) -> ApiResult<Admission> {
        let most = usize::try_from(self.config.limits.sandboxes).unwrap_or(usize::MAX);
        let (admission, earlier) = self.admissions.take(&tenant.id, count)?;
        let query = Query::new()
            .with_labels(Marks::tenant_query(&tenant.id)?)
            .with_states([State::Creating, State::Running]);
        let records = self.provider.list_all(query).await?;
        let listed = records.iter().filter(|record| Some(&record.id) != but);
        let marks: Vec<_> = listed.filter_map(Marks::of).filter(|marks| !marks.is_internal).collect();
        let listed: HashSet<_> = marks.iter().filter_map(|marks| marks.creation.as_deref()).collect();
        let flying: usize = earlier
            .iter()
            .filter(|entry| !listed.contains(entry.mark.as_str()))
            .map(|entry| entry.count)
            .sum();
        if marks.len() + flying + count > most {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "you have reached the maximum number of concurrent E2B sandboxes ({most}): kill or pause some, or \
                     have whoever runs this server raise the limit of a key"
                ),
            )
            .with_header(SHOULD_RETRY, HeaderValue::from_static("false")));
        }
        Ok(admission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_for_those_that_come_later_and_is_given_back() {
        let all = Admissions::default();
        let (first, before) = all.take("t1", 1).unwrap();
        assert!(before.is_empty());
        let (second, before) = all.take("t1", 3).unwrap();
        assert_eq!(before.iter().map(|entry| entry.count).sum::<usize>(), 1);
        assert_eq!(before[0].mark, first.mark);
        assert!(all.take("t2", 1).unwrap().1.is_empty());
        drop((first, second));
        assert!(all.0.lock().unwrap().of_tenant.is_empty());
    }
}
