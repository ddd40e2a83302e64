//! Volumes: made and removed here, and their content, which is served by a sandbox that has the volume mounted.

mod content;
mod entry;
mod fault;
mod manage;
mod room;
mod script;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use crate::app::App;

pub(crate) use room::Rooms;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/volumes", post(manage::create).get(manage::list))
        .route("/volumes/{id}", get(manage::one).delete(manage::delete))
        .route("/volumecontent/{id}/path", get(content::stat).patch(content::change).delete(content::remove))
        .route("/volumecontent/{id}/dir", get(content::list).post(content::make_dir))
        .route("/volumecontent/{id}/file", get(content::read).put(content::write))
}
