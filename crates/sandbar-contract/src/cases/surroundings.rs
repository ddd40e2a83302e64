use std::time::{Duration, Instant};

use sandbar_core::{Command, EnvVars, ErrorKind, FilesExt, RunOptions, Sandbox, UserName};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, at, ensure, ensure_eq, eventually, expect_error, fail, run, sh, sh_opts};
use crate::harness::Feature;

group!("surroundings";
    env_reaches_the_command, env_wins_over_the_sandbox, env_does_not_last, env_values_arrive_unchanged,
    path_and_home_are_set, folder_is_honoured, folder_is_home_by_default, missing_folder_is_invalid,
    missing_folder_runs_nothing, file_as_folder_is_invalid, folder_does_not_last, odd_folder_is_honoured,
    user_is_not_root_by_default, root_is_honoured, missing_user_is_invalid, missing_user_runs_nothing,
    timeout_is_an_error, timeout_keeps_partial_output, timeout_is_kept, timeout_ends_the_tree,
    timeout_says_it_ended, timeout_not_reached_changes_nothing, detached_descendant_does_not_keep_the_call,
    detached_descendant_lives_on, background_job_has_no_part_in_the_code, closed_output_does_not_end_the_call,
    sleeping_sandbox_is_a_conflict, conflict_names_the_way_out,
);

async fn env_reaches_the_command(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_env(EnvVars::new().with("KIT", "value")?);
    let output = sh_opts(&*bed.shared().await?, "echo $KIT", options).await?;
    ensure_eq!(output.stdout_lossy(), "value\n", "the variable");
    Ok(())
}

async fn env_wins_over_the_sandbox(bed: &Bed<'_>) -> Checked {
    let env = EnvVars::new().with("KIT_BOTH", "sandbox")?.with("KIT_ONE", "kept")?;
    let sandbox = bed.create(bed.options()?.with_env(env)).await?;
    let options = RunOptions::default().with_env(EnvVars::new().with("KIT_BOTH", "command")?);
    let output = sh_opts(&*sandbox, "echo $KIT_BOTH $KIT_ONE", options).await?;
    ensure_eq!(output.stdout_lossy(), "command kept\n", "the variables");
    Ok(())
}

async fn env_does_not_last(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let options = RunOptions::default().with_env(EnvVars::new().with("KIT_ONCE", "x")?);
    sh_opts(&*sandbox, "true", options).await?;
    let output = sh(&*sandbox, "echo \"[${KIT_ONCE:-unset}]\"").await?;
    ensure_eq!(output.stdout_lossy(), "[unset]\n", "the variable in the next command");
    Ok(())
}

async fn env_values_arrive_unchanged(bed: &Bed<'_>) -> Checked {
    let value = "line\nbreak 'q' \"d\" $x `y` \\z = ünïcode";
    let options = RunOptions::default().with_env(EnvVars::new().with("KIT_ODD", value)?);
    let output = sh_opts(&*bed.shared().await?, "printf '%s' \"$KIT_ODD\"", options).await?;
    ensure_eq!(output.stdout_lossy(), value, "the value");
    Ok(())
}

async fn path_and_home_are_set(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "test -n \"$PATH\" && test -d \"$HOME\" && echo yes").await?;
    ensure_eq!(output.stdout_lossy(), "yes\n", "PATH and HOME");
    Ok(())
}

async fn folder_is_honoured(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let options = RunOptions::default().with_cwd(folder.clone());
    let output = run(&*sandbox, &Command::new("pwd"), options).await?;
    ensure_eq!(output.stdout_lossy().trim_end(), folder.display(), "the working folder");
    Ok(())
}

async fn folder_is_home_by_default(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "test \"$(pwd)\" = \"$HOME\" && echo home || pwd").await?;
    ensure_eq!(output.stdout_lossy(), "home\n", "the working folder");
    Ok(())
}

async fn missing_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let options = RunOptions::default().with_cwd(at("/no/such/folder")?);
    let ran = sandbox.commands().run_opts(&Command::new("true"), options).await;
    expect_error(ran, &[ErrorKind::InvalidInput], "a missing working folder").map(drop)
}

/// Tries a command that has to be refused and would leave a file.
async fn runs_nothing(bed: &Bed<'_>, change: impl FnOnce(RunOptions) -> RunOptions) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("ran")?;
    let command = Command::shell(format!("echo x > {path}"));
    let ran = sandbox.commands().run_opts(&command, change(RunOptions::default())).await;
    expect_error(ran, &[ErrorKind::InvalidInput], "the command")?;
    ensure!(!sandbox.files().exists(&path).await?, "a refused command ran");
    Ok(())
}

async fn missing_folder_runs_nothing(bed: &Bed<'_>) -> Checked {
    let cwd = at("/no/such/folder")?;
    runs_nothing(bed, |options| options.with_cwd(cwd)).await
}

async fn file_as_folder_is_invalid(bed: &Bed<'_>) -> Checked {
    let cwd = at("/etc/passwd")?;
    runs_nothing(bed, |options| options.with_cwd(cwd)).await
}

async fn folder_does_not_last(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    sh_opts(&*sandbox, "true", RunOptions::default().with_cwd(folder.clone())).await?;
    let output = sh(&*sandbox, "pwd").await?;
    ensure!(output.stdout_lossy().trim() != folder.display(), "the next command is in the same folder");
    Ok(())
}

async fn odd_folder_is_honoured(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let odd = folder.join("a b'c\"d;e$f ü")?;
    sandbox.files().make_dir(&odd).await?;
    let output = run(&*sandbox, &Command::new("pwd"), RunOptions::default().with_cwd(odd.clone())).await?;
    ensure_eq!(output.stdout_lossy().trim_end_matches('\n'), odd.display(), "the working folder");
    Ok(())
}

async fn user_is_not_root_by_default(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "id -u").await?;
    ensure!(output.stdout_lossy().trim() != "0", "commands run as root by default");
    Ok(())
}

async fn root_is_honoured(bed: &Bed<'_>) -> Checked {
    bed.need(Feature::RootUser)?;
    let options = RunOptions::default().with_user(UserName::new("root")?);
    let output =
        sh_opts(&*bed.shared().await?, "id -u; test \"$(pwd)\" = \"$HOME\" && echo home", options).await?;
    ensure_eq!(output.stdout_lossy(), "0\nhome\n", "user and folder");
    Ok(())
}

async fn missing_user_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let options = RunOptions::default().with_user(UserName::new("no-such-user")?);
    let ran = sandbox.commands().run_opts(&Command::new("true"), options).await;
    expect_error(ran, &[ErrorKind::InvalidInput], "a missing user").map(drop)
}

async fn missing_user_runs_nothing(bed: &Bed<'_>) -> Checked {
    let user = UserName::new("no-such-user")?;
    runs_nothing(bed, |options| options.with_user(user)).await
}

/// Longer than a busy machine takes to start a script.
const STARTED_BY_THEN: Duration = Duration::from_secs(2);

/// Runs a script that takes longer than that.
async fn too_long(sandbox: &dyn Sandbox, script: &str) -> Checked<sandbar_core::Error> {
    let options = RunOptions::default().with_timeout(STARTED_BY_THEN);
    let ran = sandbox.commands().run_opts(&Command::shell(script), options).await;
    expect_error(ran, &[ErrorKind::Timeout], "a command that takes too long")
}

async fn timeout_is_an_error(bed: &Bed<'_>) -> Checked {
    too_long(&*bed.shared().await?, "sleep 60").await.map(drop)
}

async fn timeout_keeps_partial_output(bed: &Bed<'_>) -> Checked {
    let error =
        too_long(&*bed.shared().await?, "echo so far; echo trouble >&2; sleep 60; echo never").await?;
    let Some(partial) = error.partial() else { return fail("the error has no partial output") };
    ensure_eq!(partial.stdout.as_ref(), b"so far\n", "standard output so far");
    ensure_eq!(partial.stderr.as_ref(), b"trouble\n", "standard error so far");
    Ok(())
}

async fn timeout_is_kept(bed: &Bed<'_>) -> Checked {
    let began = Instant::now();
    too_long(&*bed.shared().await?, "sleep 60").await?;
    let took = began.elapsed();
    let early = STARTED_BY_THEN.saturating_sub(Duration::from_millis(50));
    ensure!(
        took >= early && took < Duration::from_secs(15),
        "a timeout of {STARTED_BY_THEN:?} came after {took:?}"
    );
    Ok(())
}

/// Whether the process whose number is in the file still runs.
async fn runs(sandbox: &dyn Sandbox, file: &str) -> Checked<bool> {
    let probe = format!("kill -0 \"$(cat {file})\" 2>/dev/null && echo alive || echo gone");
    Ok(sh(sandbox, &probe).await?.stdout_lossy() == "alive\n")
}

async fn timeout_ends_the_tree(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let (child, grandchild) = (format!("{folder}/child"), format!("{folder}/grandchild"));
    let script = format!(
        "sleep 600 & echo $! > {child}; sh -c 'sleep 600 & echo $! > {grandchild}; wait' & sleep 600"
    );
    too_long(&*sandbox, &script).await?;
    for file in [child, grandchild] {
        eventually("the end of a child", || async { Ok(!runs(&*sandbox, &file).await?) }).await?;
    }
    Ok(())
}

async fn timeout_says_it_ended(bed: &Bed<'_>) -> Checked {
    let error = too_long(&*bed.shared().await?, "sleep 60").await?;
    let ended = error.partial().and_then(|partial| partial.ended);
    ensure!(ended != Some(false), "the error says that the command lives on");
    Ok(())
}

async fn timeout_not_reached_changes_nothing(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_timeout(Duration::from_secs(30));
    let output = sh_opts(&*bed.shared().await?, "echo fine", options).await?;
    ensure_eq!(output.stdout_lossy(), "fine\n", "output");
    Ok(())
}

async fn detached_descendant_does_not_keep_the_call(bed: &Bed<'_>) -> Checked {
    let began = Instant::now();
    let command = Command::shell("echo started; sleep 60 & exit 6");
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    let took = began.elapsed();
    ensure_eq!(output.status.to_code(), 6, "the command's own code");
    ensure_eq!(output.stdout_lossy(), "started\n", "its output");
    ensure!(took < Duration::from_secs(15), "a child in the background held the call for {took:?}");
    Ok(())
}

async fn detached_descendant_lives_on(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let done = folder.join("done")?;
    let script = format!("(sleep 1; echo done > {done}) >/dev/null 2>&1 & echo $!");
    sh(&*sandbox, &script).await?;
    eventually("the file of the child", || async { Ok(sandbox.files().exists(&done).await?) }).await
}

async fn background_job_has_no_part_in_the_code(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let output = run(&*sandbox, &Command::shell("false & exit 0"), RunOptions::default()).await?;
    ensure_eq!(output.status.to_code(), 0, "code with a failing child in the background");
    let output = run(&*sandbox, &Command::shell("true & wait $!; exit 9"), RunOptions::default()).await?;
    ensure_eq!(output.status.to_code(), 9, "code with a good child in the background");
    Ok(())
}

async fn closed_output_does_not_end_the_call(bed: &Bed<'_>) -> Checked {
    let script = "exec >/dev/null 2>&1; sleep 0.3; exit 8";
    let output = run(&*bed.shared().await?, &Command::shell(script), RunOptions::default()).await?;
    ensure_eq!(output.status.to_code(), 8, "code of a command that closed its output");
    Ok(())
}

async fn sleeping_sandbox_is_a_conflict(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    let ran = sandbox.commands().run(&Command::new("true")).await;
    let error = expect_error(ran, &[ErrorKind::Conflict], "a command in a sleeping sandbox")?;
    ensure_eq!(error.state(), Some(sandbar_core::State::Sleeping), "the state named");
    Ok(())
}

async fn conflict_names_the_way_out(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.sleeper().await?;
    let ran = sandbox.commands().run(&Command::new("true")).await;
    let error = expect_error(ran, &[ErrorKind::Conflict], "a command in a sleeping sandbox")?;
    ensure!(
        error.hint().is_some_and(|hint| hint.contains("wake")),
        "no hint at waking it: {:?}",
        error.hint()
    );
    Ok(())
}
