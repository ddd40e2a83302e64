use std::fmt;

use sandbar_core::{Error, Result};
use sandbar_http::Secret;

use crate::E2bSandbox;
use crate::config::BACKEND;

/// The port of a code interpreter in a sandbox of the template `code-interpreter-v1`.
pub const CODE_INTERPRETER_PORT: u16 = 49_999;

/// Where a port of a sandbox is for programs, and what opens it.
#[derive(Clone)]
pub struct PortAccess {
    /// The origin, without a slash at the end.
    pub url: String,
    headers: Vec<(&'static str, Secret)>,
}

impl PortAccess {
    /// Headers of every request: name and value. Values are secrets.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, value.expose()))
    }
}

impl fmt::Debug for PortAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| *name).collect();
        f.debug_struct("PortAccess").field("url", &self.url).field("headers", &names).finish()
    }
}

impl E2bSandbox {
    /// How a program reaches a port, such as that of a code interpreter.
    pub async fn port_access(&self, port: u16) -> Result<PortAccess> {
        const OPERATION: &str = "port access";
        if port == 0 {
            let error = Error::invalid(OPERATION, "port 0 is not valid: expected 1 to 65535");
            return Err(error.with_backend(BACKEND));
        }
        let address = self.access.guest(OPERATION).await?;
        let mut headers = vec![
            ("e2b-sandbox-id", Secret::from(self.access.id().as_str())),
            ("e2b-sandbox-port", Secret::from(port.to_string())),
        ];
        if let Some(token) = address.token() {
            headers.push(("x-access-token", token.clone()));
        }
        if let Some(token) = self.access.traffic_token() {
            headers.push(("e2b-traffic-access-token", token));
        }
        Ok(PortAccess { url: self.access.port_origin(port), headers })
    }
}
