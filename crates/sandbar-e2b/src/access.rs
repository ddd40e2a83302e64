//! The way to a sandbox' guest, found out when it is needed and without waking anything.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use sandbar_core::{Error, Result, SandboxId};
use sandbar_http::{Client, Request, Secret};
use sandbar_wire::e2b::{Sandbox, SandboxDetail, SandboxState};

use crate::api::Api;
use crate::endpoint::GUEST_PORT;
use crate::error::{absent, asleep, unknown_state};

/// The way to one sandbox. A clone shares what is known.
#[derive(Clone)]
pub(crate) struct Access(Arc<Inner>);

struct Inner {
    api: Api,
    id: SandboxId,
    known: Mutex<Known>,
}

/// What the control plane said last.
#[derive(Default)]
struct Known {
    address: Option<Arc<GuestAddress>>,
    domain: Option<String>,
    traffic_token: Option<Secret>,
}

/// Where a guest is, and what opens it.
#[derive(Clone)]
pub(crate) struct GuestAddress {
    /// Its origin, without a slash at the end.
    pub(crate) base: String,
    /// A host of its own, for transfers that take long.
    pub(crate) direct: String,
    /// Of which protocol it speaks which version.
    pub(crate) envd_version: String,
    id: SandboxId,
    token: Option<Secret>,
}

impl GuestAddress {
    /// Adds what every request to the guest has.
    pub(crate) fn sign(&self, request: Request) -> Request {
        let request = request
            .with_header("e2b-sandbox-id", self.id.as_str())
            .with_header("e2b-sandbox-port", &GUEST_PORT.to_string());
        match &self.token {
            Some(token) => request.with_secret_header("x-access-token", token),
            None => request,
        }
    }

    /// What opens it.
    pub(crate) fn token(&self) -> Option<&Secret> {
        self.token.as_ref()
    }
}

impl fmt::Debug for GuestAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuestAddress").field(&self.base).finish()
    }
}

impl Access {
    /// To a sandbox of which nothing is known yet.
    pub(crate) fn new(api: Api, id: SandboxId) -> Self {
        Self(Arc::new(Inner { api, id, known: Mutex::default() }))
    }

    /// Whose it is.
    pub(crate) fn id(&self) -> &SandboxId {
        &self.0.id
    }

    pub(crate) fn api(&self) -> &Api {
        &self.0.api
    }

    /// The client for guests; it does not send the key.
    pub(crate) fn http(&self, operation: &'static str) -> Result<&Client> {
        self.0.api.guests().map_err(|error| error.with_operation(operation))
    }

    /// Where the guest is. Asked of the control plane once, unless creation or a look told it already. A sandbox that sleeps is a conflict.
    pub(crate) async fn guest(&self, operation: &'static str) -> Result<Arc<GuestAddress>> {
        if let Some(address) = self.known(|known| known.address.clone()) {
            return Ok(address);
        }
        let id = self.id();
        let detail =
            self.0.api.detail(operation, id).await.map_err(|error| unknown_state(operation, id, error))?;
        let Some(detail) = detail else { return Err(absent(operation, id)) };
        if detail.listed.state == SandboxState::Paused {
            return Err(asleep(operation, id));
        }
        Ok(self.learn(&detail))
    }

    /// Forgets it, since the guest did not take the token: the next call asks again.
    pub(crate) fn forget(&self) {
        self.known(|known| known.address = None);
    }

    /// The domain of the sandbox' host names, where the API told one.
    pub(crate) fn domain(&self) -> Option<String> {
        self.known(|known| known.domain.clone())
    }

    /// What opens ports that are not open to everybody, where the API told it.
    pub(crate) fn traffic_token(&self) -> Option<Secret> {
        self.known(|known| known.traffic_token.clone())
    }

    /// Where requests to a port go: where all guests are, if that was set, else to its own host.
    pub(crate) fn port_origin(&self, port: u16) -> String {
        let endpoints = self.0.api.endpoints();
        match &endpoints.guests {
            Some(origin) => origin.to_string(),
            None => endpoints.host(self.id(), port, self.domain().as_deref()),
        }
    }

    /// What it means that the guest did not answer: the control plane says whether the sandbox is gone or sleeps; else it is `otherwise`.
    pub(crate) async fn trouble(&self, operation: &'static str, otherwise: Error) -> Error {
        let id = self.id();
        match self.0.api.detail(operation, id).await {
            Ok(None) => absent(operation, id),
            Ok(Some(detail)) if detail.listed.state == SandboxState::Paused => asleep(operation, id),
            Ok(Some(_)) | Err(_) => otherwise,
        }
    }

    /// Takes in what a creation or a connect answered.
    pub(crate) fn made(&self, sandbox: &Sandbox) -> Arc<GuestAddress> {
        let traffic = sandbox.traffic_access_token.as_deref().map(Secret::from);
        self.known(|known| known.traffic_token = traffic);
        self.set(sandbox.domain.as_deref(), sandbox.envd_access_token.as_deref(), &sandbox.envd_version)
    }

    /// Takes in a record.
    pub(crate) fn learn(&self, detail: &SandboxDetail) -> Arc<GuestAddress> {
        let version = &detail.listed.envd_version;
        self.set(detail.domain.as_deref(), detail.envd_access_token.as_deref(), version)
    }

    fn set(&self, domain: Option<&str>, token: Option<&str>, envd_version: &str) -> Arc<GuestAddress> {
        let (id, endpoints) = (self.id(), self.0.api.endpoints());
        let address = Arc::new(GuestAddress {
            base: endpoints.guest(id, domain),
            direct: endpoints.direct_guest(id, domain),
            envd_version: envd_version.to_owned(),
            id: id.clone(),
            token: token.map(Secret::from),
        });
        self.known(|known| {
            known.address = Some(Arc::clone(&address));
            known.domain = domain.map(str::to_owned);
        });
        address
    }

    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Access").field(self.id()).finish()
    }
}
