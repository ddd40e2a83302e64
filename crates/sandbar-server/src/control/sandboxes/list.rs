use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use jiff::Timestamp;
use sandbar_core::{ProviderExt as _, Query as Asked, SandboxId, SandboxRecord};
use sandbar_wire::e2b::{ListedSandbox, SandboxState};
use serde::Deserialize;

use super::answer::{exposed, started_at};
use super::filter::{Filter, metadata_of, states};
use super::page::{self, NEXT_TOKEN, Order, Place};
use crate::app::App;
use crate::control::extract::Query;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::tenant::Tenant;

/// Header with how many run, of those that a list is of.
const TOTAL_RUNNING: &str = "x-total-running";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ListQuery {
    metadata: Option<String>,
    state: Option<String>,
    started_after: Option<String>,
    template: Option<String>,
    order: Option<String>,
    limit: Option<i64>,
    next_token: Option<String>,
}

/// `GET /v2/sandboxes`
pub(super) async fn v2(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Query(query): Query<ListQuery>,
) -> ApiResult<Response> {
    let order = Order::parse(query.order.as_deref())?;
    let limit = page::limit(query.limit)?;
    let after = page::place(query.next_token.as_deref(), order)?;
    let filter = Filter {
        states: states(query.state.as_deref())?,
        metadata: metadata_of(query.metadata.as_deref())?,
        started_after: query.started_after.as_deref().map(time).transpose()?,
        template: query.template.as_deref().map(template).transpose()?,
    };
    let found = app.found(&tenant, &filter).await?;
    let running = found.iter().filter(|(_, listed)| listed.state == SandboxState::Running).count();
    let (page, next) = page::cut(found, order, after.as_ref(), limit);
    let mut response = axum::Json(page).into_response();
    if filter.states.contains(&SandboxState::Running) {
        response.headers_mut().insert(TOTAL_RUNNING, HeaderValue::from(running));
    }
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        response.headers_mut().insert(NEXT_TOKEN, next);
    }
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct OldListQuery {
    metadata: Option<String>,
}

/// `GET /sandboxes`: those that run, all of them.
pub(super) async fn v1(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    Query(query): Query<OldListQuery>,
) -> ApiResult<axum::Json<Vec<ListedSandbox>>> {
    let filter = Filter {
        states: vec![SandboxState::Running],
        metadata: metadata_of(query.metadata.as_deref())?,
        ..Filter::default()
    };
    let mut found = app.found(&tenant, &filter).await?;
    found.sort_by(|(a, _), (b, _)| Order::Descending.compare(a, b));
    Ok(axum::Json(found.into_iter().map(|(_, listed)| listed).collect()))
}

impl App {
    /// Records of a tenant's sandboxes, whatever their state.
    pub(super) async fn records(&self, tenant: &Tenant) -> ApiResult<Vec<(SandboxRecord, Marks)>> {
        let query = Asked::new().with_labels(Marks::tenant_query(&tenant.id)?);
        let records = self.provider.list_all(query).await?;
        let marked = records.into_iter().filter_map(|record| Marks::of(&record).map(|marks| (record, marks)));
        Ok(marked.filter(|(_, marks)| !marks.is_internal).collect())
    }

    async fn found(&self, tenant: &Tenant, filter: &Filter) -> ApiResult<Vec<(Place, ListedSandbox)>> {
        let records = self.records(tenant).await?;
        let wanted = records.into_iter().filter(|(record, marks)| filter.wants(record, marks));
        let (records, marks): (Vec<_>, Vec<_>) = wanted.unzip();
        let paused = self.paused_at(&records).await?;
        let listed = records.iter().zip(&marks).filter_map(|(record, marks)| {
            let place = Place { at: started_at(record), id: record.id.to_string() };
            let listed = self.listed(record, marks, paused.get(&record.id).copied())?;
            Some((place, listed))
        });
        Ok(listed.collect())
    }

    /// Since when those that sleep do. One that was put to sleep by its deadline a moment ago may not have been seen yet: then it is now.
    pub(super) async fn paused_at(
        &self,
        records: &[SandboxRecord],
    ) -> ApiResult<HashMap<SandboxId, Timestamp>> {
        let asleep = records.iter().filter(|record| exposed(record.state) == Some(SandboxState::Paused));
        let asleep: Vec<_> = asleep.map(|record| record.id.clone()).collect();
        if asleep.is_empty() {
            return Ok(HashMap::new());
        }
        let turns = self.store.turns(asleep.iter().map(ToString::to_string).collect()).await?;
        let at = |id: &SandboxId| {
            let noted = turns.get(id.as_str()).filter(|(is_asleep, _)| *is_asleep);
            noted.and_then(|(_, at)| Timestamp::from_millisecond(*at).ok()).unwrap_or_else(Timestamp::now)
        };
        Ok(asleep.into_iter().map(|id| (id.clone(), at(&id))).collect())
    }
}

fn time(text: &str) -> ApiResult<Timestamp> {
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "startedAfter \"{text}\" is not valid: expected a time such as 2026-01-01T00:00:00Z"
        ))
    })
}

fn template(text: &str) -> ApiResult<String> {
    if text.contains(':') {
        return Err(ApiError::bad_request("the template filter takes no tag: expected an id or a name"));
    }
    Ok(text.trim().to_lowercase())
}
