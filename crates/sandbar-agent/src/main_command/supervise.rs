use std::rc::Rc;
use std::time::Duration;

use sandbar_wire::envd::{Code, EndEvent, ProcessConfig, RpcError, StartRequest};
use tokio::time::{Instant, sleep};

use super::Main;
use super::backoff::Backoff;
use super::output::Output;
use super::status::Phase;
use crate::config::Restart;
use crate::host::unix_ms;
use crate::processes::start;
use crate::state::State;

/// The tag under which the main command is found among the processes.
const TAG: &str = "main";

/// Starts the main command, and again as its policy says, until that says no more. A first start that does not come off is told and not repeated: whoever makes the sandbox
/// takes it back.
pub(crate) async fn supervise(state: Rc<State>, main: Rc<Main>) {
    let mut backoff = Backoff::new();
    let mut is_first = true;
    loop {
        let began = Instant::now();
        let mut end = None;
        match launch(&state, &main).await {
            Ok((pid, output)) => {
                main.change(|now| {
                    now.phase = Phase::Running(pid);
                    now.started_ms = Some(unix_ms());
                    now.problem = None;
                    now.restarts += u64::from(!is_first);
                });
                end = Some(output.keep(&main).await.unwrap_or_else(lost));
            }
            Err(error) if is_first => return main.change(|now| now.phase = Phase::Failed(error)),
            // It could be started before, and may be again.
            Err(error) => main.change(|now| now.problem = Some(error.message)),
        }
        is_first = false;
        let succeeded = end.as_ref().is_some_and(|end| end.exited && end.exit_code == 0);
        let again = match main.config.restart {
            Restart::No => false,
            Restart::OnFailure => !succeeded,
            Restart::Always => true,
        };
        let pause = backoff.next(began.elapsed());
        main.change(|now| {
            now.end = end.or_else(|| now.end.take());
            now.phase = if again { Phase::BackingOff(unix_ms() + millis(pause)) } else { Phase::Exited };
        });
        if !again {
            return;
        }
        sleep(pause).await;
    }
}

async fn launch(state: &Rc<State>, main: &Main) -> Result<(u32, Output), RpcError> {
    let config = &main.config;
    let request = StartRequest {
        process: ProcessConfig {
            cmd: config.program.clone(),
            args: config.args.clone(),
            envs: config.env.clone(),
            cwd: config.cwd.clone(),
        },
        stdin: Some(false),
        tag: Some(TAG.to_owned()),
        ..StartRequest::default()
    };
    let user = state.user(config.user.as_deref())?;
    let mut output = Output::new(start(state.clone(), request, user, None).await?);
    match output.started().await {
        Some(pid) => Ok((pid, output)),
        None => Err(RpcError::new(Code::Internal, "start the main command: it has no number")),
    }
}

/// An end that nobody saw.
fn lost() -> EndEvent {
    EndEvent::default()
}

fn millis(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
}
