use std::time::Instant;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::future::join3;

use super::fault::Fault;
use super::process::{Ended, Input, Launched, PipeReader};
use super::run::{Start, end_within, next_output, prepare, timed_out};
use super::sandbox::MemorySandbox;
use crate::{Command, Commands, ExitStatus, Output, PartialOutput, Result, RunOptions, Stdin};

#[async_trait]
impl Commands for MemorySandbox {
    async fn run_opts(&self, command: &Command, options: RunOptions) -> Result<Output> {
        let machine = self.running("run")?;
        let began = Instant::now();
        let RunOptions { cwd, env, user, timeout, stdin, output_limit } = options;
        let stdin = match stdin {
            Stdin::Null => Input::Null,
            Stdin::Bytes(bytes) => Input::bytes(bytes),
        };
        let start = Start { cwd, env, user, tag: None };
        let (launch, ends) = prepare(&machine, "run", command, start, stdin)?;
        let Launched { pid, mut ended } = match machine.launch(launch) {
            Ok(launched) => launched,
            Err(why) => {
                let reason = format!("{}: {}\n", command.program().to_string_lossy(), why.words());
                return Ok(Output {
                    status: ExitStatus::Code(why.code()),
                    stdout: Bytes::new(),
                    stderr: Bytes::from(reason),
                    truncated: false,
                    cause: None,
                    duration: began.elapsed(),
                });
            }
        };
        let stdout = keep(&ends.stdout, ended.clone(), output_limit);
        let stderr = keep(&ends.stderr, ended.clone(), output_limit);
        let (status, (stdout, more_out), (stderr, more_err)) =
            join3(end_within(&machine, pid, &mut ended, timeout), stdout, stderr).await;
        // What the command left behind on purpose may go on writing.
        ends.stdout.discard();
        ends.stderr.discard();
        match status {
            Some(status) => Ok(Output {
                status: if self.world.faults.take(Fault::Exit) { ExitStatus::Unknown } else { status },
                stdout,
                stderr,
                truncated: more_out || more_err,
                cause: None,
                duration: began.elapsed(),
            }),
            None => Err(timed_out("run", timeout.unwrap_or_default()).with_partial(PartialOutput {
                stdout,
                stderr,
                ended: Some(true),
            })),
        }
    }
}

/// The first `limit` bytes of a stream, and whether there were more. It is read to its end either way.
async fn keep(reader: &PipeReader, mut ended: Ended, limit: usize) -> (Bytes, bool) {
    let mut kept = BytesMut::new();
    let mut more = false;
    while let Some(bytes) = next_output(reader, &mut ended).await {
        let room = (limit - kept.len()).min(bytes.len());
        more |= room < bytes.len();
        kept.extend_from_slice(&bytes[..room]);
    }
    (kept.freeze(), more)
}
