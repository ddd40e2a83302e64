use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode, header};
use sandbar_core::{Result, SandboxProvider, TemplateId};
use tokio::sync::watch;

use crate::builtin::{survey, template};
use crate::config::CodeInterpreter;
use crate::error::{ApiError, ApiResult};

/// How long a creation waits for the template: the SDKs give a request 60 seconds.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

/// How soon after a failure the next creation begins anew: a network that was gone may be back, and not every creation is to pay for one that is not.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// What a client is told to wait while the template is being made, in seconds.
const COME_BACK: u64 = 15;

/// The template of the code interpreter, and how far it is.
#[derive(Debug)]
pub(super) struct CodeTemplate {
    provider: Arc<dyn SandboxProvider>,
    wanted: CodeInterpreter,
    state: watch::Sender<State>,
}

#[derive(Clone, Debug)]
enum State {
    /// Nobody began.
    Idle,
    Building,
    Ready(TemplateId),
    Failed {
        why: String,
        at: Instant,
    },
}

impl CodeTemplate {
    pub(super) fn new(provider: Arc<dyn SandboxProvider>, wanted: CodeInterpreter) -> Self {
        Self { provider, wanted, state: watch::Sender::new(State::Idle) }
    }

    /// Begins to make it, unless somebody does or it is there.
    pub(super) fn prepare(self: &Arc<Self>) {
        if self.wanted == CodeInterpreter::Off {
            return;
        }
        let begins = self.state.send_if_modified(|state| {
            let begins = match state {
                State::Idle => true,
                State::Failed { at, .. } => at.elapsed() >= RETRY_AFTER,
                State::Building | State::Ready(_) => false,
            };
            if begins {
                *state = State::Building;
            }
            begins
        });
        if begins {
            let this = Arc::clone(self);
            tokio::spawn(async move {
                // A work that ends without a word, as at the end of the runtime, leaves nobody to wait for.
                let done = this.make().await;
                this.state.send_replace(match done {
                    Ok(id) => State::Ready(id),
                    Err(error) => {
                        let mut why = error.message().to_owned();
                        if let Some(hint) = error.hint() {
                            why = format!("{why}: {hint}");
                        }
                        tracing::warn!(%why, "code-interpreter-v1 can't be made");
                        State::Failed { why, at: Instant::now() }
                    }
                });
            });
        }
    }

    async fn make(&self) -> Result<TemplateId> {
        let found = survey::survey(self.provider.as_ref()).await?;
        found.log();
        template::make(self.provider.as_ref(), &self.wanted, &found).await
    }

    /// The template once it is there.
    pub(super) async fn template(self: &Arc<Self>) -> ApiResult<TemplateId> {
        if self.wanted == CodeInterpreter::Off {
            return Err(ApiError::bad_request(
                "code-interpreter-v1 is switched off on this server: start it without `--code-interpreter off`",
            ));
        }
        self.prepare();
        let mut state = self.state.subscribe();
        let is_decided = |state: &State| matches!(state, State::Ready(_) | State::Failed { .. });
        let decided = tokio::time::timeout(LONGEST_WAIT, state.wait_for(is_decided)).await;
        match decided {
            Ok(Ok(state)) => match &*state {
                State::Ready(id) => Ok(id.clone()),
                State::Failed { why, .. } => Err(ApiError::bad_request(format!(
                    "code-interpreter-v1 could not be made on this server: {why}"
                ))),
                State::Idle | State::Building => Err(still_building()),
            },
            Ok(Err(_)) | Err(_) => Err(still_building()),
        }
    }
}

fn still_building() -> ApiError {
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "code-interpreter-v1 is still being made on this server, which happens once: try again soon",
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from(COME_BACK))
}
