use std::sync::Arc;

use futures::StreamExt;
use sandbar_core::{
    Command, EnvVars, ErrorKind, ExitStatus, FilesExt, Follow, LogEvent, LogOptions, LogStream, MainCommand,
    MainLogs, MainProcess, MainState, MainStatus, RestartPolicy, Sandbox, SandboxExt, State, UserName,
};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{
    Checked, PATIENCE, at, ensure, ensure_eq, eventually, expect_error, fail, part, sh, skip_unsupported,
};
use crate::harness::Feature;

group!("main_command";
    absent_is_none, logs_of_none_are_not_found, running_is_in_status_and_record, end_is_data_and_the_sandbox_runs_on,
    end_by_a_signal_is_data, absent_program_is_not_found, absent_folder_is_invalid, folder_is_honoured,
    env_is_honoured, user_is_honoured, on_failure_leaves_a_success, restarts_are_counted, back_off_says_until_when,
    logs_hold_both_streams, logs_hold_all_bytes, logs_have_times, follow_delivers_as_it_comes,
    follow_ends_with_the_command, follow_ends_with_the_sandbox, tail_is_the_last_lines, tail_of_none_is_empty,
    since_leaves_out_what_came_before, logs_go_on_over_restarts, of_a_gone_sandbox_is_not_found,
);

/// A sandbox with a main command, or the reason to skip.
async fn with(bed: &Bed<'_>, main: MainCommand) -> Checked<Arc<dyn Sandbox>> {
    let shared = bed.shared().await?;
    part(shared.main_command(), &*shared, "main_command")?;
    skip_unsupported(bed.create(bed.options()?.with_main(main)).await)
}

fn script(text: &str) -> MainCommand {
    MainCommand::new(Command::shell(text))
}

async fn status(sandbox: &dyn Sandbox) -> Checked<MainStatus> {
    match sandbox.require_main_command()?.status().await? {
        Some(status) => Ok(status),
        None => fail("the main command of a sandbox that has one is said to be none"),
    }
}

async fn ended(sandbox: &dyn Sandbox) -> Checked<MainStatus> {
    eventually("its end", || async { Ok(status(sandbox).await?.state == MainState::Exited) }).await?;
    status(sandbox).await
}

async fn logs(sandbox: &dyn Sandbox, options: LogOptions) -> Checked<MainLogs> {
    Ok(sandbox.require_main_command()?.logs(options).await?)
}

fn following() -> LogOptions {
    LogOptions { follow: Follow::Yes, ..LogOptions::default() }
}

/// The next piece of the logs, which has to come; `None` at their end.
async fn next(logs: &mut MainLogs) -> Checked<Option<LogEvent>> {
    match tokio::time::timeout(PATIENCE, logs.next()).await {
        Ok(event) => Ok(event.transpose()?),
        Err(_) => fail(format!("the logs neither go on nor end within {PATIENCE:?}")),
    }
}

/// What is said on `stream` up to the end.
async fn said(mut logs: MainLogs, stream: Option<LogStream>) -> Checked<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(event) = next(&mut logs).await? {
        if let LogEvent::Output(chunk) = event
            && stream.is_none_or(|stream| stream == chunk.stream)
        {
            all.extend_from_slice(&chunk.bytes);
        }
    }
    Ok(all)
}

async fn absent_is_none(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let main = part(sandbox.main_command(), &*sandbox, "main_command")?;
    ensure_eq!(main.status().await?, None, "the main command of a sandbox without one");
    ensure_eq!(sandbox.record().await?.main, None, "the same in the record");
    Ok(())
}

async fn logs_of_none_are_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let main = part(sandbox.main_command(), &*sandbox, "main_command")?;
    let logs = main.logs(LogOptions::default()).await;
    expect_error(logs, &[ErrorKind::NotFound], "logs of no main command").map(drop)
}

async fn running_is_in_status_and_record(bed: &Bed<'_>) -> Checked {
    let main = MainCommand::new(Command::new("sleep").arg("600")).with_restart(RestartPolicy::OnFailure);
    let sandbox = with(bed, main).await?;
    for status in [Some(status(&*sandbox).await?), sandbox.record().await?.main] {
        let Some(status) = status else { return fail("the record has no main command") };
        ensure_eq!(status.state, MainState::Running, "state");
        ensure_eq!(status.program, "sleep", "program");
        ensure_eq!(status.restart, RestartPolicy::OnFailure, "restart policy");
        ensure!(status.pid.is_some() && status.started_at.is_some(), "no number or start: {status:?}");
        ensure!(status.exit.is_none() && status.restarts == 0, "it ended or was restarted: {status:?}");
    }
    Ok(())
}

async fn end_is_data_and_the_sandbox_runs_on(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("exit 3")).await?;
    let status = ended(&*sandbox).await?;
    ensure_eq!(status.exit, Some(ExitStatus::Code(3)), "how it ended");
    ensure_eq!(status.pid, None, "number of one that ended");
    ensure_eq!(sandbox.record().await?.state, State::Running, "state of the sandbox");
    sh(&*sandbox, "true").await.map(drop)
}

async fn end_by_a_signal_is_data(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("kill -9 $$")).await?;
    ensure_eq!(ended(&*sandbox).await?.exit, Some(ExitStatus::Signal(9)), "how it ended");
    Ok(())
}

async fn absent_program_is_not_found(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.main_command(), &*shared, "main_command")?;
    let main = MainCommand::new(Command::new("/no/such/program")).with_restart(RestartPolicy::Always);
    let created = bed.create(bed.options()?.with_main(main)).await;
    expect_error(created, &[ErrorKind::NotFound], "an absent program").map(drop)
}

async fn absent_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let shared = bed.shared().await?;
    part(shared.main_command(), &*shared, "main_command")?;
    let main = MainCommand::new(Command::new("true")).with_cwd(at("/no/such/folder")?);
    let created = bed.create(bed.options()?.with_main(main)).await;
    expect_error(created, &[ErrorKind::InvalidInput], "an absent folder").map(drop)
}

async fn folder_is_honoured(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("pwd").with_cwd(at("/tmp")?)).await?;
    ensure_eq!(said(logs(&*sandbox, following()).await?, None).await?, b"/tmp\n", "its folder");
    Ok(())
}

async fn env_is_honoured(bed: &Bed<'_>) -> Checked {
    let env = EnvVars::new().with("OWN", "its own")?;
    let shared = bed.shared().await?;
    part(shared.main_command(), &*shared, "main_command")?;
    let options = bed.options()?.with_env(EnvVars::new().with("ALL", "everybody's")?);
    let main = script("echo \"$OWN, $ALL\"").with_env(env);
    let sandbox = skip_unsupported(bed.create(options.with_main(main)).await)?;
    let all = said(logs(&*sandbox, following()).await?, None).await?;
    ensure_eq!(all, b"its own, everybody's\n", "its environment");
    // It is its own, not the sandbox's.
    ensure_eq!(sh(&*sandbox, "echo \"<$OWN>\"").await?.stdout_lossy(), "<>\n", "another command's");
    Ok(())
}

async fn user_is_honoured(bed: &Bed<'_>) -> Checked {
    bed.need(Feature::RootUser)?;
    let main = script("echo $HOME").with_user(UserName::new("root")?);
    let sandbox = with(bed, main).await?;
    ensure_eq!(said(logs(&*sandbox, following()).await?, None).await?, b"/root\n", "its user's home");
    Ok(())
}

async fn on_failure_leaves_a_success(bed: &Bed<'_>) -> Checked {
    // Fails once, and then not.
    let once = "if [ -e /tmp/once ]; then exit 0; fi; echo x > /tmp/once; exit 1";
    let sandbox = with(bed, script(once).with_restart(RestartPolicy::OnFailure)).await?;
    let status = ended(&*sandbox).await?;
    ensure_eq!((status.restarts, status.exit), (1, Some(ExitStatus::Code(0))), "restarts and end");
    Ok(())
}

async fn restarts_are_counted(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("exit 1").with_restart(RestartPolicy::Always)).await?;
    eventually("two restarts", || async { Ok(status(&*sandbox).await?.restarts >= 2) }).await?;
    ensure_eq!(status(&*sandbox).await?.exit, Some(ExitStatus::Code(1)), "how it last ended");
    Ok(())
}

async fn back_off_says_until_when(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("exit 1").with_restart(RestartPolicy::OnFailure)).await?;
    eventually("a pause", || async {
        let status = status(&*sandbox).await?;
        if status.state != MainState::BackingOff {
            return Ok(false);
        }
        ensure!(status.next_start.is_some() && status.pid.is_none(), "{status:?}");
        Ok(true)
    })
    .await
}

async fn logs_hold_both_streams(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("echo out; echo err >&2")).await?;
    ended(&*sandbox).await?;
    for (stream, text) in [(LogStream::Stdout, "out\n"), (LogStream::Stderr, "err\n")] {
        let all = said(logs(&*sandbox, LogOptions::default()).await?, Some(stream)).await?;
        ensure_eq!(all, text.as_bytes(), format!("{stream:?}"));
    }
    Ok(())
}

async fn logs_hold_all_bytes(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("printf '\\000\\001\\033\\177\\200\\377\\r\\n'")).await?;
    ended(&*sandbox).await?;
    let all = said(logs(&*sandbox, LogOptions::default()).await?, None).await?;
    ensure_eq!(all, b"\0\x01\x1b\x7f\x80\xff\r\n", "bytes");
    Ok(())
}

async fn logs_have_times(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("echo x")).await?;
    ended(&*sandbox).await?;
    match next(&mut logs(&*sandbox, LogOptions::default()).await?).await? {
        Some(LogEvent::Output(chunk)) => {
            let off = (jiff::Timestamp::now().as_second() - chunk.at.as_second()).abs();
            ensure!(off < 120, "the piece is {off} s off");
            Ok(())
        }
        other => fail(format!("{other:?} instead of output")),
    }
}

async fn follow_delivers_as_it_comes(bed: &Bed<'_>) -> Checked {
    let waits = "echo one; while ! [ -e /tmp/go ]; do sleep 0.05; done; echo two";
    let sandbox = with(bed, script(waits)).await?;
    let mut logs = logs(&*sandbox, following()).await?;
    let mut all = Vec::new();
    let mut told = false;
    while let Some(event) = next(&mut logs).await? {
        if let LogEvent::Output(chunk) = event {
            all.extend_from_slice(&chunk.bytes);
        }
        if !told && all == b"one\n" {
            told = true;
            sandbox.files().write(&at("/tmp/go")?, "".into()).await?;
        }
    }
    ensure!(told, "the first line did not come alone: {:?}", String::from_utf8_lossy(&all));
    ensure_eq!(all, b"one\ntwo\n", "what was said");
    Ok(())
}

async fn follow_ends_with_the_command(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("sleep 0.3; echo last")).await?;
    let all = said(logs(&*sandbox, following()).await?, None).await?;
    ensure_eq!(all, b"last\n", "what was said");
    ensure_eq!(status(&*sandbox).await?.state, MainState::Exited, "state at the end of the logs");
    Ok(())
}

async fn follow_ends_with_the_sandbox(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("echo up; sleep 600")).await?;
    let mut logs = logs(&*sandbox, following()).await?;
    ensure!(matches!(next(&mut logs).await?, Some(LogEvent::Output(_))), "nothing was said");
    sandbox.destroy().await?;
    loop {
        match tokio::time::timeout(PATIENCE, logs.next()).await {
            Ok(None | Some(Err(_))) => return Ok(()),
            Ok(Some(Ok(_))) => {}
            Err(_) => return fail("the logs of a sandbox that is gone do not end"),
        }
    }
}

async fn tail_is_the_last_lines(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("echo one; echo two; echo three; printf four")).await?;
    ended(&*sandbox).await?;
    let tail = |lines| LogOptions { tail: Some(lines), ..LogOptions::default() };
    for (lines, text) in [(1, "four"), (2, "three\nfour"), (100, "one\ntwo\nthree\nfour")] {
        let all = said(logs(&*sandbox, tail(lines)).await?, None).await?;
        ensure_eq!(all, text.as_bytes(), format!("the last {lines}"));
    }
    Ok(())
}

async fn tail_of_none_is_empty(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("echo one; echo two")).await?;
    ended(&*sandbox).await?;
    let none = LogOptions { tail: Some(0), ..LogOptions::default() };
    ensure_eq!(said(logs(&*sandbox, none).await?, None).await?, b"", "the last 0 lines");
    Ok(())
}

async fn since_leaves_out_what_came_before(bed: &Bed<'_>) -> Checked {
    let waits = "echo one; while ! [ -e /tmp/go ]; do sleep 0.05; done; sleep 0.1; echo two";
    let sandbox = with(bed, script(waits)).await?;
    let mut first = logs(&*sandbox, following()).await?;
    let Some(LogEvent::Output(chunk)) = next(&mut first).await? else { return fail("nothing was said") };
    drop(first);
    sandbox.files().write(&at("/tmp/go")?, "".into()).await?;
    ended(&*sandbox).await?;
    let later = chunk.at + std::time::Duration::from_millis(2);
    let all = |since| {
        let sandbox = Arc::clone(&sandbox);
        async move {
            let options = LogOptions { since: Some(since), ..LogOptions::default() };
            said(logs(&*sandbox, options).await?, None).await
        }
    };
    ensure_eq!(all(later).await?, b"two\n", "what was said since then");
    ensure_eq!(all(chunk.at).await?, b"one\ntwo\n", "what was said since its beginning");
    Ok(())
}

async fn logs_go_on_over_restarts(bed: &Bed<'_>) -> Checked {
    let once = "echo start; if [ -e /tmp/once ]; then exit 0; fi; echo x > /tmp/once; exit 1";
    let sandbox = with(bed, script(once).with_restart(RestartPolicy::OnFailure)).await?;
    let all = said(logs(&*sandbox, following()).await?, None).await?;
    ensure_eq!(all, b"start\nstart\n", "what was said");
    Ok(())
}

async fn of_a_gone_sandbox_is_not_found(bed: &Bed<'_>) -> Checked {
    let sandbox = with(bed, script("exit 0")).await?;
    sandbox.destroy().await?;
    let main: &dyn MainProcess = sandbox.require_main_command()?;
    expect_error(main.status().await, &[ErrorKind::NotFound], "status in a gone sandbox")?;
    let logs = main.logs(LogOptions::default()).await;
    expect_error(logs, &[ErrorKind::NotFound], "logs of a gone sandbox").map(drop)
}
