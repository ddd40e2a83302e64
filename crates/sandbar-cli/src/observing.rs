use std::sync::Arc;

use sandbar::SandboxProvider;
use sandbar::observe::{AuditLog, Observation};

use crate::args::GlobalArgs;
use crate::env::Environment;
use crate::failure::Result;
use crate::output::tell;
use crate::settings;

/// What is told of this invocation, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Observing {
    observation: Option<Observation>,
    #[cfg(feature = "otlp")]
    spans: Option<Arc<sandbar::observe::otlp::OtlpExporter>>,
}

impl Observing {
    pub(crate) fn begin(global: &GlobalArgs, env: &Environment) -> Result<Self> {
        let observation = settings::observation(global, env)?;
        #[cfg(feature = "otlp")]
        let (observation, spans) = export_spans(observation, env);
        Ok(Self {
            observation,
            #[cfg(feature = "otlp")]
            spans,
        })
    }

    /// The provider at `url`, watched if there is something to tell.
    pub(crate) fn connect(&self, url: &str) -> sandbar::Result<Arc<dyn SandboxProvider>> {
        match &self.observation {
            Some(observation) => sandbar::connect_observed(url, observation.clone()),
            None => sandbar::connect(url),
        }
    }

    /// Says what could not be told.
    #[cfg_attr(
        not(feature = "otlp"),
        expect(clippy::unused_async, reason = "spans are sent here in a build that can")
    )]
    pub(crate) async fn end(self) {
        let lost = self.observation.as_ref().and_then(Observation::audit).map_or(0, AuditLog::lost);
        if lost > 0 {
            tell(&format!("{lost} events could not be written to the audit record"));
        }
        #[cfg(feature = "otlp")]
        if let Some(spans) = &self.spans {
            let unsent = spans.flush(FLUSH).await;
            if unsent > 0 {
                tell(&format!("{unsent} spans could not be sent to the collector"));
            }
        }
    }
}

/// How long the end of a command waits for a collector: one that is there takes milliseconds.
#[cfg(feature = "otlp")]
const FLUSH: std::time::Duration = std::time::Duration::from_secs(2);

/// Adds the exporter that the environment asks for. One that can't work is told, and keeps nothing from being done.
#[cfg(feature = "otlp")]
fn export_spans(
    observation: Option<Observation>,
    env: &Environment,
) -> (Option<Observation>, Option<Arc<sandbar::observe::otlp::OtlpExporter>>) {
    use sandbar::observe::otlp::{OtlpConfig, OtlpExporter};
    if !env.exports_spans {
        return (observation, None);
    }
    match OtlpExporter::start(OtlpConfig::default()) {
        Ok(exporter) => {
            let exporter = Arc::new(exporter);
            let sink = Arc::<OtlpExporter>::clone(&exporter);
            (observation.map(|observation| observation.with_spans(sink)), Some(exporter))
        }
        Err(error) => {
            tell(&format!("no spans are sent: {}", error.message()));
            (observation, None)
        }
    }
}
