use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sandbar_core::{Error, ErrorKind, ProviderExt as _, Query, Result, SandboxProvider};
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::app::App;
use crate::builtin::Builtins;
use crate::config::ServerConfig;
use crate::known::marked;
use crate::limits::KeyLimits;
use crate::listen::Tls;
use crate::observe::{self, Counts};
use crate::store::Store;
use crate::{control, guest, listen};

/// How long what goes on without its client may take at the end: a create whose template takes long to be ready.
const LAST_WORK: Duration = Duration::from_secs(60);

/// A server that has its address.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    scrapes: Option<TcpListener>,
}

impl Server {
    /// Opens the store and takes the address; nothing is answered before [`Server::run`].
    pub async fn bind(config: ServerConfig, provider: Arc<dyn SandboxProvider>) -> Result<Self> {
        config.check()?;
        let tls = config.tls.clone().map(Tls::open).transpose()?;
        let store = Store::open(&config.data)?;
        let (seal, is_new) = store.seal().await?;
        if is_new {
            warn_of_orphans(&*provider).await;
        }
        let listener = listen_at(config.listen, "--listen")?;
        let scrapes = match config.metrics_listen {
            Some(address) => Some(listen_at(address, "--metrics-listen")?),
            None => None,
        };
        let address = listener.local_addr().map_err(|e| {
            Error::new(ErrorKind::Unexpected, "serve", "the listener has no address").with_source(e)
        })?;
        let scheme = if config.tls.is_some() { "https" } else { "http" };
        let origin = match (&config.public_url, &config.domain) {
            (Some(url), _) => url.trim_end_matches('/').to_owned(),
            // Where SDKs look for it that know the domain alone, and what its certificate names.
            (None, Some(domain)) if config.tls.is_some() => format!("{scheme}://api.{domain}"),
            (None, _) => format!("{scheme}://{}", reached_by(address)),
        };
        let limits = KeyLimits::new(config.limits);
        let builtins = Builtins::new(Arc::clone(&provider), config.code_interpreter.clone());
        let app = App {
            names: guest::Names::new(config.domain.as_deref(), &origin, config.listen.ip().is_loopback()),
            config,
            origin,
            provider,
            store,
            seal,
            limits,
            builtins,
            counts: Counts::default(),
            guests: guest::Guests::default(),
            builds: control::TemplateWork::default(),
            rooms: control::Rooms::default(),
            admissions: control::Admissions::default(),
            owners: crate::known::Owners::default(),
            turns: control::Turns::default(),
            work: TaskTracker::new(),
        };
        Ok(Self { app: Arc::new(app), listener, address, tls, scrapes })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The origin that clients are to be given.
    pub fn origin(&self) -> &str {
        &self.app.origin
    }

    /// The origin for requests into sandboxes that name them by headers.
    pub fn sandbox_origin(&self) -> String {
        let ServerConfig { public_url, domain, tls, .. } = &self.app.config;
        match domain {
            Some(domain) if public_url.is_none() && tls.is_some() => format!("https://sandbox.{domain}"),
            _ => self.app.origin.clone(),
        }
    }

    /// Answers requests until `stop` is done; then those under way are ended in good order. Sandboxes stay.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let _scrapes = self.scrapes.map(|listener| {
            let router =
                Router::new().route("/metrics", get(observe::scrape)).with_state(Arc::clone(&self.app));
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = axum::serve(listener, router).await {
                    tracing::error!(%error, "scrapes are no longer answered");
                }
            }))
        });
        let app = self.app;
        app.settle_builds().await?;
        app.builtins.prepare();
        let control = control::router(Arc::clone(&app));
        let _sampler = AbortOnDropHandle::new(tokio::spawn(control::sampler::run(Arc::clone(&app))));
        let served = tokio::select! {
            served = listen::serve(Arc::clone(&app), control, self.listener, self.tls, stop) => served,
            () = app.keep_templates() => Ok(()),
            () = app.keep_rooms() => Ok(()),
        };
        app.work.close();
        if tokio::time::timeout(LAST_WORK, app.work.wait()).await.is_err() {
            tracing::warn!("sandboxes are still being made at the end: they are given up");
        }
        app.builds.end().await;
        app.end_rooms(std::time::Duration::ZERO).await;
        served
    }
}

/// A new store beside sandboxes of an older one: it was lost, and nobody has a key to them.
async fn warn_of_orphans(provider: &dyn SandboxProvider) {
    let Ok(records) = provider.list_all(Query::new()).await else { return };
    let count = marked(&records).count();
    if count > 0 {
        tracing::warn!(
            count,
            "the store is new, and there are sandboxes of an earlier one: no key reaches them; restore the store, or see `sandbar ls`"
        );
    }
}

/// An address by which this machine at least reaches what listens there.
fn reached_by(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Connections that may wait until they are accepted. With fewer, some of a program that opens thousands at once are put off by seconds, or take
/// themselves for connected where nothing is. The kernel has a bound of its own, which is this by default.
const WAITING: u32 = 4096;

fn listen_at(address: SocketAddr, option: &str) -> Result<TcpListener> {
    listening(address).map_err(|e| {
        Error::new(ErrorKind::Unavailable, "serve", format!("can't listen on {address}: {e}"))
            .with_source(e)
            .with_hint(format!("choose another address with {option}"))
    })
}

fn listening(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of an earlier server that are not quite over keep nobody from the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}
