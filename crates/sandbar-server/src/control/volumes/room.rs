use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbar_core::{
    Command, CreateOptions, EgressPolicy, ErrorKind, GuestPath, Lifetime, Output, Result, RunOptions,
    Sandbox, UserName, VolumeMount,
};
use sandbar_wire::e2b::Metadata;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::manage::provider_name;
use super::script::ROOT;
use crate::app::App;
use crate::error::{ApiError, ApiResult};
use crate::marks::Marks;
use crate::store::VolumeRow;

/// How long a sandbox that serves a volume stays without a request.
const IDLE: Duration = Duration::from_secs(60);

/// Between two looks for those that are idle.
const SWEEP: Duration = Duration::from_secs(15);

/// Volumes whose content is served at once.
const MAX_ROOMS: usize = 64;

/// Of one tenant: a quarter, so that nobody takes all. One more takes the place of the tenant's own that was idle longest.
const MAX_OF_TENANT: usize = MAX_ROOMS / 4;

/// How long a script may take.
const TIME: Duration = Duration::from_secs(120);

/// Most bytes that a script says: some hundred thousand entries of a folder.
const MAX_SAID: usize = 32 << 20;

/// Sandboxes that serve the content of volumes: one for each volume that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<HashMap<String, Room>>);

#[derive(Debug)]
struct Room {
    tenant: String,
    inner: Arc<OnceCell<Opened>>,
    users: usize,
    used: Instant,
}

/// A sandbox with a volume.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) sandbox: Arc<dyn Sandbox>,
    /// Who may do everything in it; `None` where it is who runs commands anyway.
    pub(super) root: Option<UserName>,
    /// `uid:gid` of who runs commands: whose new files are.
    pub(super) owner: String,
}

/// A use of a sandbox with a volume: it stays until this is dropped.
#[derive(Debug)]
pub(super) struct Visit {
    app: Arc<App>,
    volume: String,
    pub(super) room: Opened,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.app.rooms.leave(&self.volume);
    }
}

impl Visit {
    /// Runs a script with arguments.
    pub(super) async fn run(&self, script: &str, arguments: &[&str]) -> Result<Output> {
        let script = format!("{}{script}", super::script::BEGIN);
        let command = Command::new("/bin/sh").args(["-c", &script, "sh"]).args(arguments.iter().copied());
        let mut options = RunOptions::default().with_timeout(TIME).with_output_limit(MAX_SAID);
        options.user.clone_from(&self.room.root);
        let said = self.room.sandbox.commands().run_opts(&command, options).await;
        if said.as_ref().is_err_and(|error| error.kind() != ErrorKind::InvalidInput) {
            // It may be gone: the next request gets another one.
            self.app.rooms.forget(&self.volume, &self.room.sandbox);
        }
        said
    }
}

impl Rooms {
    /// The sandbox of a volume, which is made if it is not there.
    pub(super) async fn visit(&self, app: &Arc<App>, volume: &VolumeRow) -> ApiResult<Visit> {
        let (inner, taken) = self.enter(volume)?;
        // From here on it is left in any case.
        let leaving = Leaving { rooms: self, volume: &volume.id };
        if let Some(taken) = taken {
            app.provider.destroy(taken.sandbox.id()).await?;
        }
        let room = inner.get_or_try_init(|| open(app, volume)).await?.clone();
        std::mem::forget(leaving);
        Ok(Visit { app: Arc::clone(app), volume: volume.id.clone(), room })
    }

    /// The room of a volume, and what is to be ended for it.
    fn enter(&self, volume: &VolumeRow) -> ApiResult<(Arc<OnceCell<Opened>>, Option<Opened>)> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = None;
        if !rooms.contains_key(&volume.id) {
            let own = rooms.values().filter(|room| room.tenant == volume.tenant).count();
            if own >= MAX_OF_TENANT || rooms.len() >= MAX_ROOMS {
                let may_go =
                    |room: &Room| room.users == 0 && (own < MAX_OF_TENANT || room.tenant == volume.tenant);
                let idle = rooms.iter().filter(|(_, room)| may_go(room)).min_by_key(|(_, room)| room.used);
                let Some(id) = idle.map(|(id, _)| id.clone()) else {
                    let message = "the content of too many volumes is served at this moment: try again later";
                    return Err(ApiError::new(http::StatusCode::SERVICE_UNAVAILABLE, message));
                };
                taken = rooms.remove(&id).and_then(|room| room.inner.get().cloned());
            }
        }
        let room = rooms.entry(volume.id.clone()).or_insert_with(|| Room {
            tenant: volume.tenant.clone(),
            inner: Arc::default(),
            users: 0,
            used: Instant::now(),
        });
        room.users += 1;
        Ok((Arc::clone(&room.inner), taken))
    }

    fn leave(&self, volume: &str) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get_mut(volume) {
            room.users = room.users.saturating_sub(1);
            room.used = Instant::now();
        }
    }

    /// Forgets a sandbox that did not answer as it should; what is left of it ends with its owner or now.
    fn forget(&self, volume: &str, sandbox: &Arc<dyn Sandbox>) {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same =
            |room: &Room| room.inner.get().is_some_and(|opened| Arc::ptr_eq(&opened.sandbox, sandbox));
        if let Some(room) = rooms.get_mut(volume).filter(|room| is_same(room)) {
            room.inner = Arc::default();
        }
    }

    /// Ends the sandbox of a volume, so that nothing of the server's holds it.
    pub(super) async fn close(&self, app: &App, volume: &str) -> ApiResult<()> {
        let closed = {
            let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if rooms.get(volume).is_some_and(|room| room.users > 0) {
                return Err(ApiError::conflict("the volume's content is being read or written: try again"));
            }
            rooms.remove(volume)
        };
        if let Some(opened) = closed.and_then(|room| room.inner.get().cloned()) {
            app.provider.destroy(opened.sandbox.id()).await?;
        }
        Ok(())
    }

    fn idle(&self, since: Duration) -> Vec<Opened> {
        let mut rooms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut idle = Vec::new();
        rooms.retain(|_, room| {
            let is_idle = room.users == 0 && room.used.elapsed() >= since;
            idle.extend(room.inner.get().filter(|_| is_idle).cloned());
            !is_idle
        });
        idle
    }
}

struct Leaving<'a> {
    rooms: &'a Rooms,
    volume: &'a str,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.rooms.leave(self.volume);
    }
}

impl App {
    /// Ends sandboxes of volumes that nobody asks for, until it is dropped.
    pub(crate) async fn keep_rooms(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            self.end_rooms(IDLE).await;
        }
    }

    /// Ends sandboxes of volumes that were not asked for this long.
    pub(crate) async fn end_rooms(&self, since: Duration) {
        for opened in self.rooms.idle(since) {
            if let Err(error) = self.provider.destroy(opened.sandbox.id()).await {
                tracing::warn!(sandbox = %opened.sandbox.id(), %error, "a sandbox that served a volume is left: it ends with the server");
            }
        }
    }
}

async fn open(app: &App, volume: &VolumeRow) -> ApiResult<Opened> {
    let marks = Marks { tenant: volume.tenant.clone(), is_internal: true, ..Marks::default() };
    let options = CreateOptions::new()
        .with_labels(marks.to_labels(&Metadata::new())?)
        .with_egress(EgressPolicy::DenyAll)
        .with_lifetime(Lifetime::Owned)
        .with_volume(VolumeMount { volume: provider_name(volume)?, path: GuestPath::new(ROOT)? });
    let sandbox = app.provider.create(options).await?;
    match look(&*sandbox).await {
        Ok((root, owner)) => Ok(Opened { sandbox, root, owner }),
        Err(error) => {
            sandbox.destroy().await?;
            Err(error)
        }
    }
}

async fn look(sandbox: &dyn Sandbox) -> ApiResult<(Option<UserName>, String)> {
    let options = RunOptions::default().with_timeout(TIME);
    let said = sandbox.commands().run_opts(&Command::shell("id -u && id -g"), options.clone()).await?;
    let text = said.stdout_lossy();
    let numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let [uid, gid] = numbers.as_slice() else {
        return Err(ApiError::new(
            http::StatusCode::INTERNAL_SERVER_ERROR,
            "the sandbox that serves the volume does not say who runs its commands",
        ));
    };
    let root = UserName::new("root")?;
    let as_root = options.with_user(root.clone());
    let has_root = match sandbox.commands().run_opts(&Command::new("true"), as_root).await {
        Ok(output) => output.status.is_success(),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => false,
        Err(error) => return Err(error.into()),
    };
    Ok((has_root.then_some(root), format!("{uid}:{gid}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(tenant: &str, number: usize) -> VolumeRow {
        VolumeRow { id: format!("{tenant}{number}"), tenant: tenant.into(), name: format!("v{number}") }
    }

    #[tokio::test]
    async fn a_tenant_with_many_volumes_leaves_room_for_others() {
        let rooms = Rooms::default();
        for number in 0..MAX_ROOMS {
            let of_greedy = volume("greedy", number);
            assert!(rooms.enter(&of_greedy).is_ok());
            rooms.leave(&of_greedy.id);
        }
        let count = || rooms.0.lock().unwrap().len();
        assert_eq!(count(), MAX_OF_TENANT, "its own make room for its own");
        // Those that are in use stay, and others still have theirs.
        for number in MAX_ROOMS..MAX_ROOMS + MAX_OF_TENANT {
            assert!(rooms.enter(&volume("greedy", number)).is_ok());
        }
        assert!(rooms.enter(&volume("greedy", 1000)).is_err());
        assert!(rooms.enter(&volume("other", 0)).is_ok());
        assert_eq!(count(), MAX_OF_TENANT + 1);
    }
}
