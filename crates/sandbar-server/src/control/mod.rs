//! The control plane: E2B's REST API.

pub(crate) mod extract;
mod health;
mod sandboxes;
mod secrets;
mod teams;
mod templates;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{Method, StatusCode, Uri};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::app::App;
use crate::error::ApiError;
use crate::observe;

pub(crate) use sandboxes::{Admissions, Turns, sampler};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use templates::fuzzing as template_fuzzing;
pub(crate) use templates::{Reference, TemplateWork};
pub(crate) use volumes::Rooms;

/// Time of a sandbox beside its own, until its template's ready command has succeeded: more than any backend waits for that (the local one, five minutes).
/// What is not ready by then ends as not ready, and not at the end of its time.
pub(crate) const READY_ROOM: Duration = Duration::from_secs(6 * 60);

/// All routes of the control plane.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    if app.tells_counts() {
        router = router.route("/metrics", get(observe::scrape_here));
    }
    router
        .merge(health::routes())
        .merge(sandboxes::routes())
        .merge(templates::routes())
        .merge(teams::routes())
        .merge(volumes::routes())
        .merge(secrets::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(app.work.clone(), to_its_end))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), observe::control_plane))
        .with_state(app)
}

/// What changes something is done to its end, whether its client waits or not: half of it is nothing that anybody wants.
async fn to_its_end(State(work): State<TaskTracker>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    work.spawn(next.run(request).in_current_span()).await.unwrap_or_else(|_| {
        let message = "the request ended before it was done";
        let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message);
        error.with_error_code("internal_server_error").into_response()
    })
}

async fn unknown(method: Method, uri: Uri) -> Response {
    ApiError::not_found(format!("no such endpoint: {method} {}", uri.path())).into_response()
}

async fn not_allowed(method: Method, uri: Uri) -> Response {
    let message = format!("{method} is not allowed on {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use axum::routing::any;
    use futures::FutureExt as _;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn what_changes_something_is_done_though_its_client_leaves() {
        let (done, go, work) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()), TaskTracker::new());
        let (count, wait) = (Arc::clone(&done), Arc::clone(&go));
        let handler = any(async move || {
            wait.notified().await;
            count.fetch_add(1, Ordering::Relaxed);
        });
        let router =
            Router::new().route("/", handler).layer(middleware::from_fn_with_state(work.clone(), to_its_end));
        for method in [Method::GET, Method::POST] {
            let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            // It begins, and whoever asked is gone.
            assert!(router.clone().oneshot(request).now_or_never().is_none());
        }
        tokio::task::yield_now().await;
        go.notify_waiters();
        work.close();
        go.notify_one();
        work.wait().await;
        assert_eq!(done.load(Ordering::Relaxed), 1, "nobody waits for what was only looked at");
    }
}
