use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{Method, Request};
use sandbar_core::{GetOptions, ProviderExt as _, Query, SandboxId, State};
use sandbar_wire::envd::ENVD_PORT;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admit::{self, INVALID, Signed, Waking};
use super::body::Cut;
use super::exchange::{Lane, exchange};
use super::problem::Problem;
use super::resident::{Resident, hold};
use super::wake::ensure_running;
use crate::app::App;
use crate::emulate;
use crate::marks::Marks;

/// How often idle connections and sandboxes that nobody asked for are let go.
const SWEEP: Duration = Duration::from_secs(5);
/// How long a sandbox is remembered that nobody asks for.
const REMEMBERED: Duration = Duration::from_secs(120);
/// How often all sandboxes are listed, at most, for who may have signed a URL: forged ones cost no listing each.
const LISTED: Duration = Duration::from_millis(500);

/// What is kept of sandboxes that were asked for: handles, marks and idle connections.
#[derive(Default)]
pub(crate) struct Guests {
    residents: Mutex<HashMap<String, Arc<Resident>>>,
    /// When all sandboxes were listed last.
    listed: tokio::sync::Mutex<Option<Instant>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for Guests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guests").field("residents", &hold(&self.residents).len()).finish_non_exhaustive()
    }
}

impl Guests {
    /// To be called when a sandbox was put to sleep or destroyed, before that is answered: what is under way in it ends at once, nothing is kept of
    /// it, and the next request looks how it is.
    pub(crate) fn ended(&self, id: &SandboxId) {
        self.forget(id.as_str());
    }

    /// Lets go of a sandbox that is no more.
    pub(super) fn forget(&self, id: &str) {
        let resident = hold(&self.residents).remove(id);
        if let Some(resident) = resident {
            resident.end();
            resident.agent.clear();
        }
    }

    /// Runs something that belongs to requests, and ends with the server.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
    }

    pub(super) fn tracker(&self) -> TaskTracker {
        self.tasks.clone()
    }

    /// Lets go, from time to time, of what nobody uses. Never done.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let residents: Vec<_> = {
                let mut residents = hold(&self.residents);
                residents.retain(|_, resident| !resident.is_idle_for(REMEMBERED));
                residents.values().cloned().collect()
            };
            for resident in residents {
                resident.sweep();
            }
        }
    }

    /// Ends all that is under way.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        for (_, resident) in hold(&self.residents).drain() {
            resident.end();
            resident.agent.clear();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Keeps a sandbox, unless it is there already.
    fn keep(&self, resident: Resident) -> Arc<Resident> {
        let mut residents = hold(&self.residents);
        let id = resident.id.as_str().to_owned();
        Arc::clone(residents.entry(id).or_insert_with(|| Arc::new(resident)))
    }
}

/// The sandbox of an id. One that does not exist and one that is nobody's are the same.
async fn resident(app: &App, id: &str) -> Result<Arc<Resident>, Problem> {
    if let Some(resident) = hold(&app.guests.residents).get(id) {
        return Ok(Arc::clone(resident));
    }
    let Ok(sandbox_id) = SandboxId::new(id) else { return Err(Problem::no_sandbox(id)) };
    let problem = |error| Problem::of(id, &error);
    let found = app.provider.get_opts(&sandbox_id, GetOptions::default()).await.map_err(problem)?;
    let Some(sandbox) = found else { return Err(Problem::no_sandbox(id)) };
    let record = sandbox.record().await.map_err(problem)?;
    match Marks::of(&record) {
        Some(marks) if !marks.is_internal => {
            let resident = Resident::new(sandbox, marks, &app.seal);
            resident.seen(record);
            Ok(app.guests.keep(resident))
        }
        _ => Err(Problem::no_sandbox(id)),
    }
}

/// Answers a request for port `port` of the sandbox `id`.
pub(crate) async fn serve(app: &Arc<App>, id: &str, port: u16, request: Request<Body>) -> Response {
    let answered = async {
        if request.method() == Method::CONNECT {
            return Err(Problem::bad_request(
                id,
                "CONNECT is not for sandboxes: ask for a path, or an Upgrade",
            ));
        }
        let resident = resident(app, id).await?;
        let (mut parts, body) = request.into_parts();
        let waking = admit::admit(&resident, port, &mut parts)?;
        let request = Request::from_parts(parts, body);
        if port != ENVD_PORT {
            return exchange(app, &resident, Lane::Port(port), waking, request).await;
        }
        guest(app, &resident, waking, request).await
    };
    answered.await.unwrap_or_else(Problem::into_response)
}

/// Passes a request to the guest, or serves it where there is none that could.
async fn guest(
    app: &Arc<App>,
    resident: &Arc<Resident>,
    waking: Waking,
    request: Request<Body>,
) -> Result<Response, Problem> {
    if resident.sandbox.guest().is_some() {
        return exchange(app, resident, Lane::Agent, waking, request).await;
    }
    ensure_running(app, resident, waking).await?;
    let (awake, flight) = (resident.awake(), resident.flight(&app.guests));
    let response = emulate::serve(Arc::clone(&resident.sandbox), request).await;
    Ok(response.map(|body| Body::new(Cut::new(body, awake, flight))))
}

/// Answers a request for a file whose URL says by its signature alone which sandbox it is of.
pub(crate) async fn serve_signed(app: &Arc<App>, mut request: Request<Body>) -> Response {
    let answered = async {
        if request.method() == Method::OPTIONS {
            return Err(Problem::unauthorized(INVALID));
        }
        let signed = Signed::of(request.method(), request.uri())?;
        let mut found = signer(app, &signed);
        if found.is_none() {
            list(app).await?;
            found = signer(app, &signed);
        }
        let resident = found.ok_or_else(|| Problem::unauthorized(INVALID))?;
        signed.check(&resident.guest_token)?;
        admit::as_signed(request.headers_mut());
        guest(app, &resident, Waking::Allowed, request).await
    };
    answered.await.unwrap_or_else(Problem::into_response)
}

/// Whose token made a signature. All are tried, whichever it is.
fn signer(app: &App, signed: &Signed) -> Option<Arc<Resident>> {
    let residents: Vec<_> = hold(&app.guests.residents).values().cloned().collect();
    let secure = residents.into_iter().filter(|resident| resident.marks.is_secure);
    secure.fold(
        None,
        |found, resident| if signed.is_by(&resident.guest_token) { Some(resident) } else { found },
    )
}

/// Gets to know all sandboxes that there are by now.
async fn list(app: &App) -> Result<(), Problem> {
    let now = Instant::now();
    let mut listed = app.guests.listed.lock().await;
    if let Some(at) = *listed {
        // Somebody else's listing that began later has all that this one would.
        if at >= now {
            return Ok(());
        }
        tokio::time::sleep(LISTED.saturating_sub(at.elapsed())).await;
    }
    let began = Instant::now();
    let unknown = |error: sandbar_core::Error| Problem::of("", &error);
    let query = Query::new().with_states([State::Running, State::Sleeping]);
    for record in app.provider.list_all(query).await.map_err(unknown)? {
        let Some(marks) = Marks::of(&record).filter(|marks| marks.is_secure && !marks.is_internal) else {
            continue;
        };
        if hold(&app.guests.residents).contains_key(record.id.as_str()) {
            continue;
        }
        let found = app.provider.get_opts(&record.id, GetOptions::default()).await.map_err(unknown)?;
        if let Some(sandbox) = found {
            app.guests.keep(Resident::new(sandbox, marks, &app.seal));
        }
    }
    *listed = Some(began);
    Ok(())
}
