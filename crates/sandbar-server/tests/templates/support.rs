use http::{Method, StatusCode};
use sandbar::Command;
use serde_json::{Value, json};

use crate::common::{PATIENCE, Reply, Rig, ask};

/// Whether sandboxes have a root.
pub(crate) fn has_root() -> bool {
    std::env::var("SANDBAR_TEST_MODE").is_ok_and(|mode| mode == "single").then_some(()).is_none()
}

/// A build that was registered.
pub(crate) struct Build {
    pub(crate) template: String,
    pub(crate) id: String,
}

/// How a build ended.
pub(crate) struct Ended {
    pub(crate) status: String,
    pub(crate) reason: Value,
    pub(crate) log: Vec<String>,
}

impl Ended {
    pub(crate) fn says(&self, words: &str) -> bool {
        self.log.iter().any(|line| line.contains(words))
    }
}

impl Rig {
    pub(crate) async fn get(&self, target: &str) -> Reply {
        self.control(Method::GET, target, Value::Null).await
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> Reply {
        self.control(Method::POST, target, body).await
    }

    pub(crate) async fn delete(&self, target: &str) -> Reply {
        self.control(Method::DELETE, target, Value::Null).await
    }

    pub(crate) async fn register(&self, body: Value) -> Build {
        let reply = self.post("/v3/templates", body).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
        let answer = reply.json();
        let text = |name: &str| answer[name].as_str().expect("it is there").to_owned();
        Build { template: text("templateID"), id: text("buildID") }
    }

    /// Sends files that a step copies, as SDKs do, and answers their hash.
    pub(crate) async fn upload(&self, build: &Build, hash: char, files: &[(&str, &str)]) -> String {
        self.upload_tar(build, hash, tar(files)).await
    }

    /// The same, of an archive.
    pub(crate) async fn upload_tar(&self, build: &Build, hash: char, archive: Vec<u8>) -> String {
        let hash = hash.to_string().repeat(64);
        let link = self.get(&format!("/templates/{}/files/{hash}", build.template)).await;
        assert_eq!(link.status, StatusCode::CREATED, "{}", link.text());
        let url = link.json()["url"].as_str().expect("an address").to_owned();
        let target = url.strip_prefix(&format!("http://{}", self.address)).expect("an address of the server");
        let sent = ask(self.address, Method::PUT, target, &[], archive.into()).await;
        assert_eq!(sent.status, StatusCode::OK, "{}", sent.text());
        hash
    }

    pub(crate) async fn start(&self, build: &Build, order: Value) -> Reply {
        self.post(&format!("/v2/templates/{}/builds/{}", build.template, build.id), order).await
    }

    /// Polls as SDKs do: with the number of entries that were seen, until there are none after the end.
    pub(crate) async fn ended(&self, build: &Build) -> Ended {
        let mut log = Vec::new();
        let polled = async {
            loop {
                let target = format!(
                    "/templates/{}/builds/{}/status?logsOffset={}&limit=3",
                    build.template,
                    build.id,
                    log.len()
                );
                let reply = self.get(&target).await;
                assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
                let info = reply.json();
                let entries = info["logEntries"].as_array().expect("entries").clone();
                let messages =
                    entries.iter().map(|entry| entry["message"].as_str().expect("a message").to_owned());
                log.extend(messages);
                let status = info["status"].as_str().expect("a status").to_owned();
                if entries.is_empty() && matches!(status.as_str(), "ready" | "error") {
                    return Ended { status, reason: info["reason"].clone(), log: Vec::new() };
                }
            }
        };
        let ended = tokio::time::timeout(PATIENCE, polled).await.expect("the build ends");
        Ended { log, ..ended }
    }

    /// Builds to the end, and it has to succeed.
    pub(crate) async fn build(&self, name: &str, order: Value) -> Build {
        let build = self.register(json!({ "name": name })).await;
        let started = self.start(&build, order).await;
        assert_eq!(started.status, StatusCode::ACCEPTED, "{}", started.text());
        let ended = self.ended(&build).await;
        assert_eq!(ended.status, "ready", "{} {:?}", ended.reason, ended.log);
        build
    }

    /// What a command says in a sandbox.
    pub(crate) async fn said(&self, sandbox: &str, script: &str) -> String {
        let sandbox = self.sandbox(sandbox).await;
        let output = sandbox.commands().run(&Command::shell(script)).await.expect("it runs");
        assert!(output.status.is_success(), "{script}: {}", output.stderr_lossy());
        output.stdout_lossy().trim_end().to_owned()
    }

    /// Waits until the provider has no sandbox at all.
    pub(crate) async fn has_no_sandbox(&self) {
        let looked = async {
            let all = async || {
                sandbar::ProviderExt::list_all(&*self.provider, sandbar::Query::new()).await.expect("a list")
            };
            while !all().await.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.expect("no sandbox is left");
    }

    /// Waits until the provider has this many templates of tenants.
    pub(crate) async fn has_templates(&self, count: usize) {
        let looked = async {
            loop {
                let templates = self.provider.templates().expect("it has templates");
                if templates.list("srv-").await.expect("a list").len() == count {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, looked).await.expect("templates that nobody needs go");
    }
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content.as_bytes()).expect("it is appended");
    }
    builder.into_inner().expect("an archive")
}
