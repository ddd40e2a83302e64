use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use sandbar::{ProviderExt as _, Query, Sandbox, SandboxId};
use serde_json::{Value, json};

use super::client::Client;
use crate::bed::Bed;

/// How long the server may take until it says where it is.
const START: Duration = Duration::from_secs(30);

/// A server over the bed's data folder. It ends with its owner, and its sandboxes do.
pub(super) struct Served<'a> {
    pub(super) bed: &'a Bed,
    child: Child,
    /// What it says is to be exported: key and origins.
    pub(super) exports: Vec<(String, String)>,
    pub(super) address: SocketAddr,
}

/// A sandbox that the server made, also as the library sees it.
pub(super) struct Guest {
    pub(super) sandbox: Arc<dyn Sandbox>,
    token: String,
}

impl<'a> Served<'a> {
    /// With the settings that it has by itself, but for the code interpreter, which takes minutes to make and is not measured here.
    pub(super) fn start(bed: &'a Bed) -> Result<Self, String> {
        let mut command = bed.command_line();
        command.args(["serve", "--listen", "127.0.0.1:0", "--code-interpreter", "off", "--data"]);
        command.arg(tempfile::tempdir_in(bed.folder()).map_err(|why| why.to_string())?.keep());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| format!("`sandbar serve`: {why}"))?;
        let stdout = child.stdout.take().ok_or("`sandbar serve` has no output")?;
        let mut served = Self { bed, child, exports: Vec::new(), address: ([0, 0, 0, 0], 0).into() };
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        while served.export("E2B_SANDBOX_URL").is_none() {
            let line = told.recv_timeout(START).map_err(|_| "`sandbar serve` did not say where it is")?;
            if let Some((name, value)) = line.strip_prefix("export ").and_then(|pair| pair.split_once('=')) {
                served.exports.push((name.to_owned(), value.to_owned()));
            }
        }
        let origin = served.export("E2B_SANDBOX_URL").and_then(|origin| origin.strip_prefix("http://"));
        let address = origin.and_then(|address| address.parse().ok());
        served.address = address.ok_or("`sandbar serve` told no address")?;
        Ok(served)
    }

    fn export(&self, name: &str) -> Option<&str> {
        self.exports.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Makes a sandbox as SDKs do.
    pub(super) async fn create(&self) -> Result<Guest, String> {
        let mut client = Client::connect(self.address).await?;
        let key = self.export("E2B_API_KEY").ok_or("`sandbar serve` told no key")?;
        let headers = [("x-api-key", key), ("content-type", "application/json")];
        let body = json!({"templateID": "base", "timeout": 3600, "secure": true}).to_string();
        let (status, answer) = client.ask("POST", "/v2/sandboxes", &headers, body).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|why| format!("{status}: {why}"))?;
        let text = |name: &str| answer[name].as_str().ok_or_else(|| format!("{status}: {answer}"));
        let (id, token) = (SandboxId::new(text("sandboxID")?), text("envdAccessToken")?.to_owned());
        let id = id.map_err(|error| error.to_string())?;
        let found = self.bed.provider.get(&id).await.map_err(|error| error.to_string())?;
        Ok(Guest { sandbox: found.ok_or("the new sandbox is not there")?, token })
    }
}

impl Guest {
    /// Headers of a request for its guest.
    pub(super) fn headers(&self) -> [(&str, &str); 3] {
        [
            ("e2b-sandbox-id", self.sandbox.id().as_str()),
            ("e2b-sandbox-port", "49983"),
            ("x-access-token", &self.token),
        ]
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let provider = &self.bed.provider;
        let ended = self.bed.runtime.block_on(async {
            for record in provider.list_all(Query::new()).await? {
                provider.destroy(&record.id).await?;
            }
            Ok::<_, sandbar::Error>(())
        });
        if let Err(error) = ended {
            eprintln!("sandbar-bench: sandboxes may be left in {}: {error}", self.bed.home().display());
        }
    }
}
