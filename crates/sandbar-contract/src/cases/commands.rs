use sandbar_core::{Command, ErrorKind, ExitStatus, FilesExt, RunOptions};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, expect_error, run, sh};
use crate::harness::Fault;

group!("commands";
    success_is_code_zero, non_zero_exit_is_data, exit_codes_are_kept, signal_is_data,
    signal_counts_as_128_plus_its_number, nested_signal_is_the_shells_code,
    unknown_end_is_a_failure, empty_command_is_invalid,
    nul_in_an_argument_is_invalid, arguments_arrive_as_they_are, arguments_are_not_parsed_by_a_shell,
    empty_arguments_arrive, many_arguments_arrive, long_argument_arrives,
    non_utf8_argument_arrives_or_is_refused, shell_is_asked_for, shell_takes_arguments, unknown_program_is_127,
    unknown_path_is_127, unknown_program_has_a_reason, not_executable_is_126, folder_is_126,
    script_file_runs, sequential_commands_are_separate, concurrent_commands_are_independent,
    duration_is_measured,
);

async fn success_is_code_zero(bed: &Bed<'_>) -> Checked {
    let output = run(&*bed.shared().await?, &Command::new("true"), RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(0), "status of `true`");
    ensure!(output.stdout.is_empty() && output.stderr.is_empty(), "`true` has output");
    Ok(())
}

async fn non_zero_exit_is_data(bed: &Bed<'_>) -> Checked {
    let script = "echo out; echo err >&2; exit 3";
    let output = run(&*bed.shared().await?, &Command::shell(script), RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(3), "status");
    ensure_eq!(output.stdout_lossy(), "out\n", "standard output");
    ensure_eq!(output.stderr_lossy(), "err\n", "standard error");
    Ok(())
}

async fn exit_codes_are_kept(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    for code in [1, 2, 42, 124, 125, 126, 127, 128, 137, 254, 255] {
        let output = run(&*sandbox, &Command::shell(format!("exit {code}")), RunOptions::default()).await?;
        ensure_eq!(output.status, ExitStatus::Code(code), "status");
    }
    Ok(())
}

async fn signal_is_data(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    for (name, number) in [("KILL", 9), ("TERM", 15), ("HUP", 1)] {
        let script = format!("echo before; kill -{name} $$; sleep 10");
        let output = run(&*sandbox, &Command::shell(script), RunOptions::default()).await?;
        ensure_eq!(output.status, ExitStatus::Signal(number), format!("status after SIG{name}"));
        ensure_eq!(output.stdout_lossy(), "before\n", "output from before the signal");
    }
    Ok(())
}

async fn signal_counts_as_128_plus_its_number(bed: &Bed<'_>) -> Checked {
    let killed = Command::shell("kill -KILL $$; sleep 10");
    let output = run(&*bed.shared().await?, &killed, RunOptions::default()).await?;
    ensure_eq!(output.status.to_code(), 137, "the status as a number");
    ensure!(!output.status.is_success(), "a killed command is a success");
    Ok(())
}

async fn nested_signal_is_the_shells_code(bed: &Bed<'_>) -> Checked {
    let script = "sh -c 'kill -KILL $$; sleep 10' 2>/dev/null; echo $?";
    let output = sh(&*bed.shared().await?, script).await?;
    ensure_eq!(output.stdout_lossy(), "137\n", "`$?` after a killed child");
    Ok(())
}

async fn unknown_end_is_a_failure(bed: &Bed<'_>) -> Checked {
    let faulty = bed.faulty().await?;
    let sandbox = faulty.provider().create(faulty.options.clone()).await?;
    faulty.arm(Fault::Exit)?;
    // An error that says so would do as well; a success never.
    if let Ok(output) = sandbox.commands().run(&Command::shell("echo kept")).await {
        ensure_eq!(output.status, ExitStatus::Unknown, "status of a command whose end is unknown");
        ensure_eq!(output.status.to_code(), 137, "the status as a number");
        ensure_eq!(output.stdout_lossy(), "kept\n", "output from before");
    }
    Ok(())
}

async fn empty_command_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ran = sandbox.commands().run(&Command::new("")).await;
    expect_error(ran, &[ErrorKind::InvalidInput], "an empty program").map(drop)
}

async fn nul_in_an_argument_is_invalid(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let ran = sandbox.commands().run(&Command::new("echo").arg("a\0b")).await;
    expect_error(ran, &[ErrorKind::InvalidInput], "an argument with NUL").map(drop)
}

/// Prints each argument in brackets.
fn brackets() -> Command {
    Command::shell("for a in \"$@\"; do printf '[%s]' \"$a\"; done").arg("name")
}

async fn arguments_arrive_as_they_are(bed: &Bed<'_>) -> Checked {
    let odd = [
        "two words",
        "'single'",
        "\"double\"",
        "line\nbreak",
        "tab\there",
        "back\\slash\\n",
        "$HOME",
        "${x}",
        "$(id)",
        "`id`",
        "*",
        "?",
        "~",
        "a;b",
        "a&b",
        "a|b",
        "<in>",
        "#no",
        "!",
        "--flag=x",
        "-",
        "ünïcødé 漢字 🦀",
        " leading and trailing ",
    ];
    let expected = odd.map(|argument| format!("[{argument}]")).concat();
    let command = brackets().args(odd);
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), expected, "the arguments");
    Ok(())
}

async fn arguments_are_not_parsed_by_a_shell(bed: &Bed<'_>) -> Checked {
    let command = Command::new("echo").args(["a  b", "$HOME; exit 9", "'q'"]);
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), "a  b $HOME; exit 9 'q'\n", "output of `echo`");
    ensure_eq!(output.status, ExitStatus::Code(0), "status");
    Ok(())
}

async fn empty_arguments_arrive(bed: &Bed<'_>) -> Checked {
    let command = brackets().args(["", "a", "", ""]);
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), "[][a][][]", "the arguments");
    Ok(())
}

async fn many_arguments_arrive(bed: &Bed<'_>) -> Checked {
    const HOW_MANY: usize = 2000;
    let command = Command::shell("echo $#").arg("name").args((0..HOW_MANY).map(|n| n.to_string()));
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy().trim(), HOW_MANY.to_string(), "arguments counted");
    Ok(())
}

async fn long_argument_arrives(bed: &Bed<'_>) -> Checked {
    const LENGTH: usize = 100_000;
    let command = Command::shell("printf '%s' \"$1\" | wc -c").args(["name", &"x".repeat(LENGTH)]);
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy().trim(), LENGTH.to_string(), "its length");
    Ok(())
}

async fn non_utf8_argument_arrives_or_is_refused(bed: &Bed<'_>) -> Checked {
    let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"a\xff\xfeb".to_vec());
    let sandbox = bed.shared().await?;
    match sandbox.commands().run(&brackets().arg(odd)).await {
        Ok(output) => ensure_eq!(output.stdout.as_ref(), b"[a\xff\xfeb]", "the argument"),
        Err(error) => {
            let kinds = [ErrorKind::InvalidInput, ErrorKind::Unsupported];
            ensure!(kinds.contains(&error.kind()), "refused as {:?}: {error}", error.kind());
        }
    }
    Ok(())
}

async fn shell_is_asked_for(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let output = sh(&*sandbox, "echo one | cat; x=two; echo $x && (echo three) || echo no").await?;
    ensure_eq!(output.stdout_lossy(), "one\ntwo\nthree\n", "what a shell makes of it");
    Ok(())
}

async fn shell_takes_arguments(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("echo \"$0-$1-$2\"").args(["zero", "one", "two"]);
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), "zero-one-two\n", "output");
    Ok(())
}

async fn unknown_program_is_127(bed: &Bed<'_>) -> Checked {
    let command = Command::new("no-such-program-of-the-kit");
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(127), "status");
    Ok(())
}

async fn unknown_path_is_127(bed: &Bed<'_>) -> Checked {
    let command = Command::new("/no/such/program");
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(127), "status");
    Ok(())
}

async fn unknown_program_has_a_reason(bed: &Bed<'_>) -> Checked {
    let command = Command::new("no-such-program-of-the-kit");
    let output = run(&*bed.shared().await?, &command, RunOptions::default()).await?;
    let named = output.stderr_lossy().contains("no-such-program-of-the-kit");
    ensure!(named, "standard error does not name the program: {}", output.stderr_lossy());
    Ok(())
}

async fn not_executable_is_126(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("plain-file")?;
    sandbox.files().write(&path, "#!/bin/sh\necho ran\n".into()).await?;
    let command = Command::new(path.to_str().unwrap_or_default());
    let output = run(&*sandbox, &command, RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(126), "status");
    ensure!(!output.stderr.is_empty(), "there is no reason on standard error");
    Ok(())
}

async fn folder_is_126(bed: &Bed<'_>) -> Checked {
    let output = run(&*bed.shared().await?, &Command::new("/tmp"), RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(126), "status of a folder");
    Ok(())
}

async fn script_file_runs(bed: &Bed<'_>) -> Checked {
    let (sandbox, folder) = bed.place().await?;
    let path = folder.join("script")?;
    sandbox.files().write(&path, "#!/bin/sh\necho \"ran with $1\"\nexit 4\n".into()).await?;
    sh(&*sandbox, &format!("chmod +x {path}")).await?;
    let command = Command::new(path.to_str().unwrap_or_default()).arg("it");
    let output = run(&*sandbox, &command, RunOptions::default()).await?;
    ensure_eq!(output.stdout_lossy(), "ran with it\n", "output");
    ensure_eq!(output.status, ExitStatus::Code(4), "status");
    Ok(())
}

async fn sequential_commands_are_separate(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    for number in 0..20 {
        let output = sh(&*sandbox, &format!("echo {number}; LEFT=over; cd /")).await?;
        ensure_eq!(output.stdout_lossy().trim(), number.to_string(), "output");
    }
    let output = sh(&*sandbox, "echo \"[${LEFT:-nothing}]\"").await?;
    ensure_eq!(output.stdout_lossy(), "[nothing]\n", "what is left of an earlier command");
    Ok(())
}

async fn concurrent_commands_are_independent(bed: &Bed<'_>) -> Checked {
    let sandbox = bed.shared().await?;
    let one = async |number: usize| {
        let script = format!("echo {number}; sleep 0.1; echo {number} >&2; exit {number}");
        let output = run(&*sandbox, &Command::shell(script), RunOptions::default()).await?;
        ensure_eq!(output.stdout_lossy().trim(), number.to_string(), "standard output");
        ensure_eq!(output.stderr_lossy().trim(), number.to_string(), "standard error");
        ensure_eq!(output.status.to_code(), i32::try_from(number).unwrap_or(-1), "status");
        Checked::Ok(())
    };
    futures::future::try_join_all((1..=8).map(one)).await.map(drop)
}

async fn duration_is_measured(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "sleep 0.3").await?;
    let millis = output.duration.as_millis();
    ensure!((250..20_000).contains(&millis), "`sleep 0.3` took {millis} ms");
    Ok(())
}
