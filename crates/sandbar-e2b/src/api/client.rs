use std::fmt;
use std::sync::{Arc, OnceLock};

use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sandbar_core::{Result, SandboxId};
use sandbar_http::{Client, Config, Request, Response};

use super::answer::refusal;
use crate::E2bConfig;
use crate::config::BACKEND;
use crate::endpoint::{Endpoints, Origin};

/// The header of the key.
const KEY: &str = "x-api-key";

/// The control plane of one account. A clone shares its connections.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    config: E2bConfig,
    origin: Origin,
    endpoints: Endpoints,
    /// Made at the first call, since that is when a missing key is an error. What failed is tried again.
    control: OnceLock<Client>,
    guests: OnceLock<Client>,
}

impl Api {
    pub(crate) fn new(config: E2bConfig) -> Result<Self> {
        let (origin, endpoints) = (config.api()?, config.endpoints()?);
        let (control, guests) = (OnceLock::new(), OnceLock::new());
        Ok(Self(Arc::new(Inner { config, origin, endpoints, control, guests })))
    }

    pub(crate) fn config(&self) -> &E2bConfig {
        &self.0.config
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.0.endpoints
    }

    /// The client for guests. It does not send the key: a guest is nobody to be trusted with it.
    pub(crate) fn guests(&self) -> Result<&Client> {
        if let Some(client) = self.0.guests.get() {
            return Ok(client);
        }
        let config = Config::new(BACKEND).with_secret(self.0.config.api_key()?);
        let client = Client::new(config)?;
        Ok(self.0.guests.get_or_init(|| client))
    }

    fn control(&self) -> Result<&Client> {
        if let Some(client) = self.0.control.get() {
            return Ok(client);
        }
        let config = Config::new(BACKEND).with_secret_header(KEY, self.0.config.api_key()?)?;
        let client = Client::new(config)?;
        Ok(self.0.control.get_or_init(|| client))
    }

    /// A call; `path` begins with a slash and is encoded already.
    pub(crate) fn request(&self, operation: &'static str, method: Method, path: &str) -> Request {
        Request::new(operation, method, format!("{}{path}", self.0.origin))
    }

    /// Sends it and hands back the answer, whatever its status.
    pub(crate) async fn send(&self, operation: &'static str, request: Request) -> Result<Response> {
        let client = self.control().map_err(|error| error.with_operation(operation))?;
        client.send(request).await
    }

    /// Sends it; an answer that is no success is an error.
    pub(crate) async fn succeed(&self, operation: &'static str, request: Request) -> Result<Response> {
        let response = self.send(operation, request).await?;
        if response.status().is_success() { Ok(response) } else { Err(refusal(&response)) }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Api").field(&self.0.origin.as_str()).finish()
    }
}

/// A part of a path.
pub(super) fn segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Whether `id` is of the form that ids have at E2B. Others name no sandbox there, and some would name another one: what follows a `-` is cut off.
pub(crate) fn is_id(id: &SandboxId) -> bool {
    id.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
