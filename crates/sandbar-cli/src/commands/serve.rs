use sandbar::{Error, ErrorKind};
use sandbar_server::{DefaultEgress, KeyStore, Server, ServerConfig};
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::args::LogFormatArg;
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::host_limits;
use crate::observing::Observing;
use crate::output::{Printer, print_json_line, print_line, tell};
use crate::settings::ServeSettings;
use crate::signals::Signals;

/// What is logged where `RUST_LOG` says nothing.
const LOGGED: &str = "info";

/// Serves until somebody asks it to end.
pub(crate) fn serve(settings: ServeSettings, observing: &Observing, printer: Printer) -> Result<ExitStatus> {
    host_limits::allow_descriptors();
    host_limits::check_descriptors()?;
    log_to_stderr(settings.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Error::new(ErrorKind::Unexpected, "start", format!("no event loop: {error}")).with_source(error)
    })?;
    let done = runtime.block_on(async {
        let provider = observing.connect(&settings.url)?;
        let is_open = settings.config.default_egress == DefaultEgress::Internet;
        settings.config.check()?;
        let keys = KeyStore::open(&settings.config.data)?;
        refuse_strangers(&settings.config, &keys).await?;
        advise(&settings.config);
        let domain = settings.config.domain.clone();
        let server = Server::bind(settings.config, provider).await?;
        let mut signals = Signals::catch()?;
        greet(&server, domain.as_deref(), &keys, printer).await?;
        tracing::info!(
            origin = server.origin(),
            default_egress = if is_open { "internet" } else { "none" },
            "serving; sandboxes whose creator says nothing of the network reach {}",
            if is_open { "public addresses (--default-egress none for nothing)" } else { "nothing" },
        );
        let stop = async {
            let signal = signals.next().await;
            tracing::info!(signal = signal.0, "stopping; sandboxes stay");
        };
        server.run(stop).await?;
        Ok(ExitStatus::Done)
    });
    runtime.shutdown_background();
    done
}

/// An address that others reach needs a key from the start: one that is printed to a log nobody looks at is none.
async fn refuse_strangers(config: &ServerConfig, keys: &KeyStore) -> Result<()> {
    if config.listen.ip().is_loopback() || !keys.list().await?.is_empty() {
        return Ok(());
    }
    let message = format!("{} is reached by others, and there is no API key yet", config.listen);
    let error = Error::new(ErrorKind::Config, "serve", message);
    Err(error.with_hint("make one first: `sandbar key create`").into())
}

/// Lines to paste into a shell. The key stands in them at the first start only: afterwards nobody knows it. Content of volumes has a URL of its own in SDKs,
/// without which they would send it to E2B.
async fn greet(server: &Server, domain: Option<&str>, keys: &KeyStore, printer: Printer) -> Result<()> {
    let key = if keys.list().await?.is_empty() { Some(keys.create("first", None).await?.text) } else { None };
    let (origin, sandboxes) = (server.origin(), server.sandbox_origin());
    if printer.json() {
        print_json_line(&json!({
            "version": 1, "key": key, "api_url": origin, "sandbox_url": sandboxes, "domain": domain, "volume_api_url": origin,
        }))?;
    } else {
        let urls = [("E2B_API_URL", origin), ("E2B_SANDBOX_URL", &sandboxes), ("E2B_VOLUME_API_URL", origin)];
        let lines = key.iter().map(|key| ("E2B_API_KEY", key.as_str())).chain(urls);
        let lines = lines.chain(domain.map(|domain| ("E2B_DOMAIN", domain)));
        let lines: Vec<_> = lines.map(|(name, value)| format!("export {name}={value}")).collect();
        // At once: whoever reads as many lines as he needs and leaves does not end the server.
        print_line(&lines.join("\n"))?;
    }
    if key.is_none() {
        tell("there are API keys already, and none is shown twice: `sandbar key create` makes another");
    }
    Ok(())
}

/// What others need who reach it by the network.
fn advise(config: &ServerConfig) {
    if config.listen.ip().is_loopback() {
        return;
    }
    if config.listen.ip().is_unspecified() && config.public_url.is_none() && config.domain.is_none() {
        tracing::warn!(
            "it listens on every address and knows none that clients elsewhere use: --public-url says it"
        );
    }
    if config.tls.is_none() {
        tracing::warn!(
            "keys and tokens pass in clear: use --tls-cert and --tls-key, or a proxy with TLS before it"
        );
    }
}

fn log_to_stderr(format: LogFormatArg) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOGGED));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A subscriber that is there already is a test's.
    let _ = match format {
        LogFormatArg::Text => builder.try_init(),
        LogFormatArg::Json => builder.json().try_init(),
    };
}
