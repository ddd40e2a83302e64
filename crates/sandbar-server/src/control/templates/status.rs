use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use sandbar_wire::e2b::{BuildInfo, BuildLogEntry, BuildLogs, BuildReason};
use serde::Deserialize;

use super::path::TemplatePath;
use crate::app::App;
use crate::control::extract::Query;
use crate::error::{ApiError, ApiResult};
use crate::store::{BuildRow, Level, LogQuery, LogRow, TemplateRow};
use crate::tenant::Tenant;

/// Most entries of one answer: what E2B gives.
const MAX_ENTRIES: i64 = 100;

#[derive(Debug, Deserialize)]
pub(super) struct StatusQuery {
    #[serde(rename = "logsOffset")]
    logs_offset: Option<i64>,
    limit: Option<i64>,
    level: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogsQuery {
    cursor: Option<i64>,
    limit: Option<i64>,
    direction: Option<String>,
    level: Option<String>,
}

/// `GET /templates/{id}/builds/{build}/status`
pub(super) async fn status(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
    Query(query): Query<StatusQuery>,
) -> ApiResult<axum::Json<BuildInfo>> {
    let (template, build) = build_of(&app, &tenant, &path).await?;
    let offset = query.logs_offset.unwrap_or(0);
    let logs = LogQuery {
        offset: usize::try_from(offset).map_err(|_| {
            ApiError::bad_request(format!("logsOffset {offset} is not valid: expected 0 or more"))
        })?,
        limit: limit(query.limit)?,
        level: level(query.level.as_deref())?,
        newest_first: false,
        from: None,
    };
    let entries = entries(app.store.build_logs(&build.id, logs).await?);
    let reason =
        build.reason.map(|message| BuildReason { message, step: build.reason_step, log_entries: Vec::new() });
    Ok(axum::Json(BuildInfo {
        template_id: template.id,
        build_id: build.id,
        status: build.status.as_str().to_owned(),
        logs: entries.iter().map(|entry| entry.message.clone()).collect(),
        log_entries: entries,
        reason,
    }))
}

/// `GET /templates/{id}/builds/{build}/logs`
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    tenant: Tenant,
    path: TemplatePath,
    Query(query): Query<LogsQuery>,
) -> ApiResult<axum::Json<BuildLogs>> {
    let (_, build) = build_of(&app, &tenant, &path).await?;
    let newest_first = match query.direction.as_deref() {
        None | Some("forward") => false,
        Some("backward") => true,
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "direction \"{}\" is not valid: expected \"forward\" or \"backward\"",
                super::name::shown(other)
            )));
        }
    };
    let from = query.cursor.map(Timestamp::from_millisecond).transpose().map_err(|_| {
        ApiError::bad_request("cursor is not valid: expected a time in milliseconds since 1970")
    })?;
    let logs = LogQuery {
        offset: 0,
        limit: limit(query.limit)?,
        level: level(query.level.as_deref())?,
        newest_first,
        from,
    };
    Ok(axum::Json(BuildLogs { logs: entries(app.store.build_logs(&build.id, logs).await?) }))
}

/// The build that a path names. An unknown one and another tenant's are the same answer.
pub(super) async fn build_of(
    app: &App,
    tenant: &Tenant,
    path: &TemplatePath,
) -> ApiResult<(TemplateRow, BuildRow)> {
    match app.store.build(&tenant.id, &path.template, &path.second).await? {
        Some(found) => Ok(found),
        None if app.store.template(&tenant.id, &path.template).await?.is_some() => {
            let build = super::name::shown(&path.second);
            Err(ApiError::not_found(format!("template '{}' has no build '{build}'", path.template)))
        }
        None => Err(ApiError::no_template(&path.text)),
    }
}

fn entries(rows: Vec<LogRow>) -> Vec<BuildLogEntry> {
    let entry = |row: LogRow| BuildLogEntry {
        timestamp: row.at,
        level: row.level.as_str().to_owned(),
        message: row.message,
        step: row.step,
    };
    rows.into_iter().map(entry).collect()
}

fn limit(asked: Option<i64>) -> ApiResult<usize> {
    let asked = asked.unwrap_or(MAX_ENTRIES);
    match usize::try_from(asked) {
        Ok(limit) if (0..=MAX_ENTRIES).contains(&asked) => Ok(limit),
        _ => Err(ApiError::bad_request(format!(
            "limit {asked} is not valid: expected a number from 0 to {MAX_ENTRIES}"
        ))),
    }
}

fn level(asked: Option<&str>) -> ApiResult<Level> {
    let Some(text) = asked else { return Ok(Level::Debug) };
    Level::parse(text).ok_or_else(|| {
        let text = super::name::shown(text);
        ApiError::bad_request(format!(
            "level \"{text}\" is not valid: expected \"debug\", \"info\", \"warn\" or \"error\""
        ))
    })
}
