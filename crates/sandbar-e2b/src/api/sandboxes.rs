use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sandbar_core::{Error, ErrorKind, Result, SandboxId};
use sandbar_http::{Idempotency, Response};
use sandbar_wire::e2b::{
    ConnectSandbox, ListedSandbox, Metadata, NetworkUpdate, NewSandbox, PauseSandbox, Sandbox, SandboxDetail,
    SandboxMetric, SandboxState, SetTimeout,
};

use super::answer::{is_absent, is_own, refusal};
use super::client::{Api, is_id, segment};
use super::page::{PAGE, Page, pages};
use crate::config::BACKEND;
use crate::error::absent;
use crate::plan::whole;

/// How long making a sandbox may take: a template may wait a minute until its service is ready.
const CREATE: Duration = Duration::from_secs(120);

/// How long a pause may take, and a resume: memory is written out or read in.
const PAUSE: Duration = Duration::from_secs(120);

/// Rows of a listing as they come.
pub(crate) type Rows = BoxStream<'static, Result<ListedSandbox>>;

/// What came of a creation.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) sandbox: Sandbox,
    /// Whether more than one request was sent, so that a server that does not know keys may have made more than one.
    pub(crate) was_repeated: bool,
}

/// Why nothing came of a creation.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: Error,
    /// Whether the API itself said so; else it may have made something.
    pub(crate) is_answered: bool,
}

/// What a pause found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    Now,
    Already,
}

impl Api {
    /// Makes a sandbox. The server knows a repetition by `key`.
    pub(crate) async fn create(&self, asked: &NewSandbox, key: &str) -> Result<Created, Failed> {
        const OPERATION: &str = "create";
        let request = self
            .request(OPERATION, Method::POST, "/v2/sandboxes")
            .with_json(asked)
            .with_idempotency(Idempotency::Keyed(key.to_owned()))
            .with_timeout(CREATE);
        let unanswered = |error| Failed { error, is_answered: false };
        let response = self.send(OPERATION, request).await.map_err(unanswered)?;
        if response.status().is_success() {
            let sandbox = response.json().map_err(unanswered)?;
            return Ok(Created { sandbox, was_repeated: response.attempts() > 1 });
        }
        let error = refusal(&response);
        let error = if is_absent(&response) {
            let message = format!("what it needs does not exist: {}", error.message());
            Error::new(ErrorKind::NotFound, OPERATION, message)
                .with_backend(BACKEND)
                .with_resource(format!("template `{}`", asked.template_id))
                .with_source(error)
        } else {
            error
        };
        // A proxy on the way may have given up on a creation that goes on behind it.
        Err(Failed { error, is_answered: is_own(&response) || response.status().is_client_error() })
    }

    /// The record of a sandbox; `None` if the API says that it does not exist.
    pub(crate) async fn detail(
        &self,
        operation: &'static str,
        id: &SandboxId,
    ) -> Result<Option<SandboxDetail>> {
        if !is_id(id) {
            return Ok(None);
        }
        let request =
            self.request(operation, Method::GET, &format!("/sandboxes/{id}")).with_resource(named(id));
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            return Ok(None);
        }
        if !response.status().is_success() {
            return Err(refusal(&response));
        }
        let detail: SandboxDetail = response.json()?;
        if detail.listed.sandbox_id == id.as_str() {
            Ok(Some(detail))
        } else {
            Err(response.unreadable("it is the record of another sandbox"))
        }
    }

    /// All sandboxes with this metadata in one of these states; one request a page.
    pub(crate) fn list(&self, operation: &'static str, metadata: &Metadata, states: &[SandboxState]) -> Rows {
        let (api, filter) = (self.clone(), list_query(metadata, states));
        let pages = pages(operation, move |token| {
            let (api, mut path) = (api.clone(), format!("/v2/sandboxes?limit={PAGE}{filter}"));
            if let Some(token) = token {
                path.push_str("&nextToken=");
                path.push_str(&segment(&token));
            }
            async move {
                let request = api.request(operation, Method::GET, &path);
                Page::of(&api.succeed(operation, request).await?)
            }
        });
        let rows =
            pages.map_ok(|page: Page<ListedSandbox>| futures::stream::iter(page.rows.into_iter().map(Ok)));
        rows.try_flatten().boxed()
    }

    /// Ends a sandbox; `false` if the API says that it does not exist.
    pub(crate) async fn kill(&self, operation: &'static str, id: &SandboxId) -> Result<bool> {
        if !is_id(id) {
            return Ok(false);
        }
        let request = self
            .request(operation, Method::DELETE, &format!("/sandboxes/{id}"))
            .with_resource(named(id))
            .with_idempotency(Idempotency::Safe);
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            // After an answer that was lost it is most likely the one that this call ended.
            return Ok(response.attempts() > 1);
        }
        if response.status().is_success() { Ok(true) } else { Err(refusal(&response)) }
    }

    /// Connects: wakes it, and lets it live `timeout` from now on at least. `None` if it does not exist.
    pub(crate) async fn connect(
        &self,
        operation: &'static str,
        id: &SandboxId,
        timeout: Duration,
    ) -> Result<Option<Sandbox>> {
        let asked = ConnectSandbox { timeout: Some(seconds(timeout)), memory: None };
        let request = self
            .request(operation, Method::POST, &format!("/v2/sandboxes/{id}/connect"))
            .with_resource(named(id))
            .with_json(&asked)
            .with_idempotency(Idempotency::Safe)
            .with_timeout(PAUSE);
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            return Ok(None);
        }
        if response.status().is_success() { Ok(Some(response.json()?)) } else { Err(refusal(&response)) }
    }

    /// Pauses a sandbox with its memory.
    pub(crate) async fn pause(&self, operation: &'static str, id: &SandboxId) -> Result<Paused> {
        let asked = PauseSandbox { memory: Some(true), require_healthy_guest: None };
        let request = self
            .request(operation, Method::POST, &format!("/sandboxes/{id}/pause"))
            .with_resource(named(id))
            .with_json(&asked)
            .with_idempotency(Idempotency::Safe)
            .with_timeout(PAUSE);
        let response = self.send(operation, request).await?;
        match response.status().as_u16() {
            409 if says_already(&response) => Ok(Paused::Already),
            _ if is_absent(&response) => Err(absent(operation, id)),
            _ if response.status().is_success() => Ok(Paused::Now),
            _ => Err(refusal(&response)),
        }
    }

    /// Lets a sandbox that runs live `timeout` from now on; `None` if there is none that runs.
    pub(crate) async fn set_timeout(
        &self,
        operation: &'static str,
        id: &SandboxId,
        timeout: Duration,
    ) -> Result<Option<()>> {
        let request = self
            .request(operation, Method::POST, &format!("/sandboxes/{id}/timeout"))
            .with_resource(named(id))
            .with_json(&SetTimeout { timeout: seconds(timeout) })
            .with_idempotency(Idempotency::Safe);
        let response = self.send(operation, request).await?;
        self.unless_absent(&response)
    }

    /// Replaces what a sandbox reaches; `None` if there is none that runs.
    pub(crate) async fn set_network(
        &self,
        operation: &'static str,
        id: &SandboxId,
        update: &NetworkUpdate,
    ) -> Result<Option<()>> {
        let request = self
            .request(operation, Method::PUT, &format!("/sandboxes/{id}/network"))
            .with_resource(named(id))
            .with_json(update)
            .with_idempotency(Idempotency::Safe);
        let response = self.send(operation, request).await?;
        self.unless_absent(&response)
    }

    /// What a sandbox used, oldest first, since Unix second `start`; `None` if it does not exist.
    pub(crate) async fn metrics(
        &self,
        operation: &'static str,
        id: &SandboxId,
        start: i64,
    ) -> Result<Option<Vec<SandboxMetric>>> {
        let path = format!("/sandboxes/{id}/metrics?start={start}");
        let request = self.request(operation, Method::GET, &path).with_resource(named(id));
        let response = self.send(operation, request).await?;
        if is_absent(&response) {
            return Ok(None);
        }
        if response.status().is_success() { Ok(Some(response.json()?)) } else { Err(refusal(&response)) }
    }

    #[expect(clippy::unused_self, reason = "reads as the calls above it do")]
    fn unless_absent(&self, response: &Response) -> Result<Option<()>> {
        match response.status() {
            _ if is_absent(response) => Ok(None),
            status if status.is_success() => Ok(Some(())),
            _ => Err(refusal(response)),
        }
    }
}

/// How errors name a sandbox.
pub(crate) fn named(id: &SandboxId) -> String {
    format!("sandbox `{id}`")
}

/// Whole seconds, no fewer than asked for.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(whole(duration).as_secs()).unwrap_or(i64::MAX)
}

/// A pause can also be refused with 409 since the sandbox is on its way to another state, or its guest does not answer.
fn says_already(response: &Response) -> bool {
    String::from_utf8_lossy(response.body()).contains("already paused")
}

/// `&metadata=…&state=…`. Metadata is encoded three times: each key and value, the form that they make, and the query.
fn list_query(metadata: &Metadata, states: &[SandboxState]) -> String {
    let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut query = String::new();
    if !metadata.is_empty() {
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (key, value) in metadata {
            form.append_pair(&escaped(key), &escaped(value));
        }
        query.push_str("&metadata=");
        query.push_str(&segment(&form.finish()));
    }
    if !states.is_empty() {
        let words: Vec<_> = states
            .iter()
            .map(|state| match state {
                SandboxState::Running => "running",
                SandboxState::Paused => "paused",
            })
            .collect();
        query.push_str("&state=");
        query.push_str(&words.join(","));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_encoded_three_times() {
        let metadata = Metadata::from([("a".into(), "b c".into())]);
        assert_eq!(list_query(&metadata, &[]), "&metadata=a%3Db%252520c");
        let states = [SandboxState::Running, SandboxState::Paused];
        assert_eq!(list_query(&Metadata::new(), &states), "&state=running,paused");
    }

    #[test]
    fn seconds_are_never_fewer_than_asked_for() {
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_secs(2)), 2);
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn ids_of_another_form_name_no_sandbox() {
        for (id, is) in [("iabc09", true), ("iabc-def", false), ("Iabc", false), ("i_b", false)] {
            assert_eq!(is_id(&SandboxId::new(id).unwrap()), is, "{id}");
        }
    }
}
