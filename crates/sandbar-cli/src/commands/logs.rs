use std::io;
use std::pin::pin;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use sandbar::{LogEvent, LogOptions, LogStream, SandboxExt, SandboxProvider};
use serde_json::{Value, json};

use crate::commands::interrupt::or_interrupt;
use crate::commands::resolve::{absent, require};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{Printer, print_json_line, rfc3339};
use crate::signals::Signals;
use crate::stdio::{Output, Stream};

pub(crate) async fn logs(
    provider: &dyn SandboxProvider,
    id: &str,
    options: LogOptions,
    printer: Printer,
) -> Result<ExitStatus> {
    let mut signals = Signals::catch()?;
    let begin = async {
        let sandbox = require(provider, id, "read logs").await.map_err(absent)?;
        // A sandbox that is there and has no main command is a mistake, not an absence.
        Ok::<_, Failure>(sandbox.require_main_command()?.logs(options).await?)
    };
    let mut logs = or_interrupt(&mut signals, begin).await?;
    let (mut stdout, mut stderr) = (Output::new(Stream::Stdout), Output::new(Stream::Stderr));
    let mut reader_gone = pin!(Output::reader_gone(Stream::Stdout));
    loop {
        let next = async {
            tokio::select! {
                biased;
                event = logs.next() => event.transpose().map_err(Failure::from),
                () = &mut reader_gone => Err(Failure::output(io::ErrorKind::BrokenPipe.into())),
            }
        };
        let event = match or_interrupt(&mut signals, next).await {
            // The usual way to stop following is no mishap to be told of.
            Err(Failure { status: status @ ExitStatus::Interrupted(_), .. }) => return Ok(status),
            event => event?,
        };
        let Some(event) = event else { break };
        if printer.json() {
            print_json_line(&form(&event))?;
            continue;
        }
        match event {
            LogEvent::Output(chunk) => {
                let out = if chunk.stream == LogStream::Stdout { &mut stdout } else { &mut stderr };
                out.write(chunk.bytes).await.map_err(Failure::output)?;
            }
            LogEvent::Lost(bytes) => printer.warn(&format!("{bytes} bytes that it said here are not kept")),
            _ => {}
        }
    }
    stdout.finish().await.and(stderr.finish().await).map_err(Failure::output)?;
    Ok(ExitStatus::Done)
}

fn form(event: &LogEvent) -> Value {
    match event {
        LogEvent::Output(chunk) => {
            let stream = if chunk.stream == LogStream::Stdout { "stdout" } else { "stderr" };
            match std::str::from_utf8(&chunk.bytes) {
                Ok(text) => json!({"version": 1, "at": rfc3339(chunk.at), "stream": stream, "data": text}),
                Err(_) => {
                    json!({"version": 1, "at": rfc3339(chunk.at), "stream": stream, "data_base64": STANDARD.encode(&chunk.bytes)})
                }
            }
        }
        LogEvent::Lost(bytes) => json!({"version": 1, "lost": bytes}),
        _ => Value::Null,
    }
}
