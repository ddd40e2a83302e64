use std::time::Duration;

use futures::StreamExt;
use sandbar_core::{Command, Process, ProcessEvent, RunOptions, Sandbox, SandboxExt, SpawnOptions};
use serde_json::Value;

/// What programs inside have in common.
const PRELUDE: &str = include_str!("client.py");
/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Programs of a sandbox that try to get out.
pub(crate) trait Tries {
    /// Runs Python after the prelude; the answer is what it showed.
    async fn python(&self, program: &str, arguments: &[&str]) -> Value;

    /// The status of an answer by HTTP, or why there is none.
    async fn get(&self, host: &str, port: u16) -> String;

    /// Starts a program that says things.
    async fn begin(&self, program: &str, arguments: &[&str]) -> Client;

    /// Starts a download that has begun.
    async fn download(&self, host: &str, port: u16) -> Client;
}

impl Tries for dyn Sandbox + '_ {
    async fn python(&self, program: &str, arguments: &[&str]) -> Value {
        let options = RunOptions::default().with_timeout(LIMIT);
        let output =
            self.commands().run_opts(&command(program, arguments), options).await.expect("an output");
        let text = output.stdout_lossy();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.is_success(), "{program}: {text}\n{complaint}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{program}: {e}: {text}\n{complaint}"))
    }

    async fn get(&self, host: &str, port: u16) -> String {
        let program = "show(get(sys.argv[1], int(sys.argv[2])))";
        let answer = self.python(program, &[host, &port.to_string()]).await;
        answer.as_str().expect("a word").to_owned()
    }

    async fn begin(&self, program: &str, arguments: &[&str]) -> Client {
        let processes = self.require_processes().expect("processes");
        let process = processes.spawn(&command(program, arguments), SpawnOptions::default()).await;
        Client { process: process.expect("a process"), rest: String::new() }
    }

    async fn download(&self, host: &str, port: u16) -> Client {
        let program = "download(sys.argv[1], int(sys.argv[2]))";
        let mut client = self.begin(program, &[host, &port.to_string()]).await;
        assert_eq!(client.line(LIMIT).await.as_deref(), Some("begun"));
        client
    }
}

fn command(program: &str, arguments: &[&str]) -> Command {
    Command::new("python3").args(["-c", &format!("{PRELUDE}\n{program}")]).args(arguments.iter().copied())
}

/// What a program needs before it can try.
pub(crate) fn prelude() -> &'static str {
    PRELUDE
}

/// A program that says things.
pub(crate) struct Client {
    process: Process,
    rest: String,
}

impl Client {
    /// The next line; none within `limit` is an answer too.
    pub(crate) async fn line(&mut self, limit: Duration) -> Option<String> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let line = line.to_owned();
                self.rest = rest.into();
                return Some(line);
            }
            match tokio::time::timeout_at(end, self.process.events.next()).await {
                Ok(Some(Ok(ProcessEvent::Stdout(bytes) | ProcessEvent::Stderr(bytes)))) => {
                    self.rest.push_str(&String::from_utf8_lossy(&bytes));
                }
                Ok(Some(Ok(other))) => panic!("{other:?} before the end of a line; so far: {}", self.rest),
                Ok(Some(Err(error))) => panic!("{error:?}"),
                Ok(None) => panic!("no more lines; so far: {}", self.rest),
                Err(_) => return None,
            }
        }
    }
}
