//! A sandbox runs before a request goes into it.

use std::sync::Arc;
use std::time::Duration;

use super::admit::Waking;
use super::problem::Problem;
use super::resident::{Resident, Seen};
use crate::app::App;
use crate::known::Known;

/// How long a waking may take until whoever waits for it is told to come again.
const WAKE_LIMIT: Duration = Duration::from_secs(60);

/// Returns when it runs. One that sleeps is woken where its creator wanted that and the request may.
pub(super) async fn ensure_running(
    app: &Arc<App>,
    resident: &Arc<Resident>,
    waking: Waking,
) -> Result<(), Problem> {
    if resident.is_leased() {
        return Ok(());
    }
    let id = resident.id.as_str();
    match resident.look().await.map_err(|error| Problem::of(id, &error))? {
        Seen::Running => Ok(()),
        Seen::InTransition => Err(Problem::in_transition(id)),
        Seen::Gone => {
            app.guests.forget(id);
            Err(Problem::no_sandbox(id))
        }
        Seen::Sleeping(_) if !resident.marks.auto_resume => Err(Problem::no_sandbox(id)),
        Seen::Sleeping(_) if waking == Waking::Refused => Err(Problem::no_waking(id)),
        Seen::Sleeping(_) => {
            // Not with the request, nor with the server: whoever goes away does not leave it half awake.
            let (done, result) = tokio::sync::oneshot::channel();
            let (woken, app_of_it) = (Arc::clone(resident), Arc::clone(app));
            app.work.spawn(async move {
                let _ = done.send(wake(&app_of_it, &woken).await);
            });
            match tokio::time::timeout(WAKE_LIMIT, result).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) | Err(_) => Err(Problem::in_transition(id)),
            }
        }
    }
}

/// Wakes it, once for all who ask, within what its tenant may have.
async fn wake(app: &App, resident: &Resident) -> Result<(), Problem> {
    let id = resident.id.as_str();
    let _turn = resident.waking.lock().await;
    if resident.is_leased() {
        return Ok(());
    }
    let record = match resident.look().await.map_err(|error| Problem::of(id, &error))? {
        Seen::Running => return Ok(()),
        Seen::InTransition => return Err(Problem::in_transition(id)),
        Seen::Gone => return Err(Problem::no_sandbox(id)),
        Seen::Sleeping(record) => *record,
    };
    let known = Known { sandbox: Arc::clone(&resident.sandbox), record, marks: resident.marks.clone() };
    app.resume_for_request(&known).await.map_err(|error| Problem::of_api(id, error))?;
    match resident.look().await.map_err(|error| Problem::of(id, &error))? {
        Seen::Running => Ok(()),
        Seen::Gone => Err(Problem::no_sandbox(id)),
        Seen::InTransition | Seen::Sleeping(_) => Err(Problem::in_transition(id)),
    }
}
