use std::path::{Path, PathBuf};

use sandbar_server::{
    CodeInterpreter, DEFAULT_HEAD_LIMIT, DefaultEgress, Limits, PackageSet, ServerConfig, TlsFiles,
};

use super::{Caller, provider_url};
use crate::args::{CodeInterpreterArg, EgressArg, LogFormatArg, ServeArgs};
use crate::failure::Result;

/// Folder of the server's store in a data folder.
const SERVER: &str = "server";

/// Requests at once, in seconds' worth of the rate.
const BURST: u32 = 2;

/// `serve`.
#[derive(Debug)]
pub(crate) struct ServeSettings {
    pub(crate) url: String,
    pub(crate) config: ServerConfig,
    pub(crate) log_format: LogFormatArg,
}

impl ServeSettings {
    pub(crate) fn resolve(args: ServeArgs, caller: Caller<'_>) -> Result<Self> {
        let ServeArgs {
            listen,
            domain,
            tls_cert,
            tls_key,
            public_url,
            data,
            default_egress,
            code_interpreter,
            code_interpreter_packages,
            log_format,
            limits,
            metrics_listen,
        } = args;
        let url = provider_url(caller.global.provider.as_deref(), caller.env)?;
        let tls = tls_cert.zip(tls_key).map(|(certificate, key)| TlsFiles { certificate, key });
        let default_egress = match default_egress {
            EgressArg::Internet => DefaultEgress::Internet,
            EgressArg::None => DefaultEgress::None,
        };
        let data = server_folder(data.as_deref(), &url)?;
        let code_interpreter = match (code_interpreter_packages, code_interpreter) {
            (Some(folder), _) => CodeInterpreter::Folder(folder),
            (None, CodeInterpreterArg::Full) => CodeInterpreter::Download(PackageSet::Full),
            (None, CodeInterpreterArg::Minimal) => CodeInterpreter::Download(PackageSet::Minimal),
            (None, CodeInterpreterArg::Off) => CodeInterpreter::Off,
        };
        let limits = Limits {
            sandboxes: limits.sandboxes,
            sleeping: limits.sleeping,
            requests_per_second: limits.rate,
            burst: limits.rate.saturating_mul(BURST),
            longest_timeout: limits.timeout.0,
        };
        let config = ServerConfig {
            listen,
            domain,
            tls,
            data,
            default_egress,
            limits,
            public_url,
            code_interpreter,
            metrics_listen,
            head_limit: DEFAULT_HEAD_LIMIT,
        };
        Ok(Self { url, config, log_format })
    }
}

/// The folder of the server's store: what was typed, else beside local sandboxes.
pub(crate) fn server_folder(typed: Option<&Path>, url: &str) -> Result<PathBuf> {
    if let Some(folder) = typed {
        return Ok(folder.to_owned());
    }
    let mut config = sandbar_local::LocalConfig::new();
    if let Some(home) = url.strip_prefix("local:").filter(|home| !home.is_empty()) {
        config = config.with_home(home);
    }
    Ok(config.data_folder()?.join(SERVER))
}
