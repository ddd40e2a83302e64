use std::collections::BTreeMap;
use std::time::Duration;

use sandbar_core::{Command, Error, ErrorKind, Result, RunOptions, Sandbox, UserName};
use sandbar_engine::Host;
use sandbar_engine::handover::AGENT_PATH;

use crate::error::fail;
use crate::probe::{MAX_INPUT, Numbered, PROBE_NAME, Tried, try_all};

/// How long a probe may take: the slowest attempt is made with a pause of 12 s, and the others wait for their turn in sixteens.
const PATIENCE: Duration = Duration::from_secs(120);
/// Most bytes of what a probe says that are read: some hundred lines of some hundred bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// Has the attempts made inside, by everybody who a program can be: the ordinary user, and root where there is one.
pub(super) async fn inside(
    sandbox: &dyn Sandbox,
    attempts: &[Numbered],
) -> Result<Vec<(&'static str, BTreeMap<u32, Tried>)>> {
    let host = Host::observe();
    let has_root = host.needs_range() || host.user_id_mode().has_root();
    let user = probe(sandbox, attempts, None);
    if !has_root {
        return Ok(vec![("user", user.await?)]);
    }
    let root = UserName::new("root")?;
    let (user, root) = futures::join!(user, probe(sandbox, attempts, Some(root)));
    Ok(vec![("user", user?), ("root", root?)])
}

/// Has the host make the attempts.
pub(super) async fn outside(attempts: Vec<Numbered>) -> Result<BTreeMap<u32, Tried>> {
    let work = move || {
        let mut seen = BTreeMap::new();
        try_all(&attempts, |tried| drop(seen.insert(tried.id, tried)));
        seen
    };
    tokio::task::spawn_blocking(work).await.map_err(|cause| lost(format!("the host's attempts: {cause}")))
}

async fn probe(
    sandbox: &dyn Sandbox,
    attempts: &[Numbered],
    user: Option<UserName>,
) -> Result<BTreeMap<u32, Tried>> {
    let input = serde_json::to_vec(attempts).map_err(|cause| lost(format!("the probe's input: {cause}")))?;
    if u64::try_from(input.len()).is_ok_and(|length| length > MAX_INPUT) {
        return Err(lost(format!("the probe's input has {} bytes", input.len())));
    }
    let mut options =
        RunOptions::default().with_stdin(input).with_timeout(PATIENCE).with_output_limit(MAX_OUTPUT);
    options.user = user;
    let command = Command::new(AGENT_PATH).arg(PROBE_NAME);
    let ran = sandbox.commands().run_opts(&command, options).await;
    let output = match ran {
        Ok(output) if output.status.is_success() => output.stdout,
        Ok(output) => {
            return Err(lost(format!(
                "the probe ended with {}: {}",
                output.status,
                first_line(&output.stderr)
            )));
        }
        // Of what was tried until then something may have been reached.
        Err(error) => error.partial().map(|partial| partial.stdout.clone()).ok_or(error)?,
    };
    // A line that is none is an attempt that nobody knows of, which counts as not made.
    let lines =
        output.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Tried>(line).ok());
    Ok(lines.map(|tried| (tried.id, tried)).collect())
}

fn first_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines().next().unwrap_or("it said nothing").chars().filter(|c| !c.is_control()).take(200).collect()
}

fn lost(why: String) -> Error {
    fail(ErrorKind::Unexpected, "verify egress", why)
}
