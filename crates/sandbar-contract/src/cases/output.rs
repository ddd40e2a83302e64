use std::fmt::Write as _;

use bytes::Bytes;
use sandbar_core::{Command, ExitStatus, RunOptions};

use crate::bed::Bed;
use crate::case::group;
use crate::check::{Checked, ensure, ensure_eq, run, sh, sh_opts};

group!("output";
    streams_are_kept_apart, is_not_trimmed, keeps_its_order, all_byte_values_arrive, split_character_is_whole,
    not_text_is_kept, large_output_is_complete, large_error_output_is_complete, limit_cuts, limit_says_truncated,
    limit_does_not_block, exact_limit_is_not_truncated, limit_counts_each_stream, limit_of_zero_keeps_nothing,
    within_limit_is_not_truncated, stdin_arrives, stdin_bytes_arrive_unchanged, stdin_is_at_its_end_by_default,
    large_stdin_arrives, unread_stdin_is_harmless, debug_shows_no_output,
);

const MEGABYTE: usize = 1_000_000;

async fn streams_are_kept_apart(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "echo one; echo two >&2; echo three; echo four >&2").await?;
    ensure_eq!(output.stdout_lossy(), "one\nthree\n", "standard output");
    ensure_eq!(output.stderr_lossy(), "two\nfour\n", "standard error");
    Ok(())
}

async fn is_not_trimmed(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "printf '\\n  a \\r\\n\\n\\t'").await?;
    ensure_eq!(output.stdout_lossy(), "\n  a \r\n\n\t", "output with blanks round it");
    Ok(())
}

async fn keeps_its_order(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "seq 20000").await?;
    let mut expected = String::new();
    for number in 1..=20_000 {
        let _ = writeln!(expected, "{number}");
    }
    ensure!(output.stdout == expected.as_bytes(), "the numbers from 1 to 20000 did not arrive in order");
    Ok(())
}

async fn all_byte_values_arrive(bed: &Bed<'_>) -> Checked {
    let bytes: Vec<u8> = (0..=255).collect();
    let mut script = String::from("printf '");
    for byte in &bytes {
        let _ = write!(script, "\\{byte:03o}");
    }
    script.push('\'');
    let output = sh(&*bed.shared().await?, &script).await?;
    ensure_eq!(output.stdout, bytes, "the 256 byte values");
    Ok(())
}

async fn split_character_is_whole(bed: &Bed<'_>) -> Checked {
    let script = "printf '\\303'; sleep 0.1; printf '\\251\\n'";
    let output = sh(&*bed.shared().await?, script).await?;
    ensure_eq!(output.stdout_lossy(), "é\n", "a character written in two pieces");
    Ok(())
}

async fn not_text_is_kept(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "printf 'a\\377b' >&2").await?;
    ensure_eq!(output.stderr.as_ref(), b"a\xffb", "standard error that is not text");
    Ok(())
}

async fn large_output_is_complete(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "head -c 3000000 /dev/zero").await?;
    ensure_eq!(output.stdout.len(), 3 * MEGABYTE, "bytes");
    ensure!(output.stdout.iter().all(|b| *b == 0), "bytes other than 0");
    ensure!(!output.truncated, "it is said to be truncated");
    Ok(())
}

async fn large_error_output_is_complete(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "head -c 1000000 /dev/zero >&2; echo done").await?;
    ensure_eq!(output.stderr.len(), MEGABYTE, "bytes of standard error");
    ensure_eq!(output.stdout_lossy(), "done\n", "standard output");
    Ok(())
}

async fn limit_cuts(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_output_limit(10);
    let output = sh_opts(&*bed.shared().await?, "printf 'abcdefghijklmnop'", options).await?;
    ensure_eq!(output.stdout_lossy(), "abcdefghij", "the first ten bytes");
    Ok(())
}

async fn limit_says_truncated(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_output_limit(10);
    let output = sh_opts(&*bed.shared().await?, "printf 'abcdefghijklmnop'", options).await?;
    ensure!(output.truncated, "cut output is not said to be truncated");
    Ok(())
}

async fn limit_does_not_block(bed: &Bed<'_>) -> Checked {
    let command = Command::shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; exit 7");
    let options = RunOptions::default().with_output_limit(1000);
    let output = run(&*bed.shared().await?, &command, options).await?;
    ensure_eq!(output.status, ExitStatus::Code(7), "status of a command with much output");
    ensure_eq!(output.stdout.len(), 1000, "bytes kept");
    ensure!(output.truncated, "it is not said to be truncated");
    Ok(())
}

async fn exact_limit_is_not_truncated(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_output_limit(5);
    let output = sh_opts(&*bed.shared().await?, "printf 12345", options).await?;
    ensure_eq!(output.stdout_lossy(), "12345", "output");
    ensure!(!output.truncated, "output as long as the limit is said to be truncated");
    Ok(())
}

async fn limit_counts_each_stream(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_output_limit(5);
    let output = sh_opts(&*bed.shared().await?, "printf 12345; printf abcde >&2", options).await?;
    ensure_eq!(output.stdout_lossy(), "12345", "standard output");
    ensure_eq!(output.stderr_lossy(), "abcde", "standard error");
    ensure!(!output.truncated, "two streams within the limit are said to be truncated");
    Ok(())
}

async fn limit_of_zero_keeps_nothing(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_output_limit(0);
    let output = sh_opts(&*bed.shared().await?, "echo x", options).await?;
    ensure!(output.stdout.is_empty(), "output was kept");
    ensure!(output.truncated, "it is not said to be truncated");
    Ok(())
}

async fn within_limit_is_not_truncated(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "echo x").await?;
    ensure!(!output.truncated, "two bytes are said to be truncated");
    Ok(())
}

async fn stdin_arrives(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_stdin("line one\nline two");
    let output = run(&*bed.shared().await?, &Command::new("cat"), options).await?;
    ensure_eq!(output.stdout_lossy(), "line one\nline two", "what `cat` read");
    Ok(())
}

async fn stdin_bytes_arrive_unchanged(bed: &Bed<'_>) -> Checked {
    let bytes: Vec<u8> = (0..=255).rev().cycle().take(10_000).collect();
    let options = RunOptions::default().with_stdin(bytes.clone());
    let output = run(&*bed.shared().await?, &Command::new("cat"), options).await?;
    ensure!(output.stdout == bytes, "the bytes came back changed");
    Ok(())
}

async fn stdin_is_at_its_end_by_default(bed: &Bed<'_>) -> Checked {
    let output = run(&*bed.shared().await?, &Command::new("cat"), RunOptions::default()).await?;
    ensure_eq!(output.status, ExitStatus::Code(0), "status of `cat` without input");
    ensure!(output.stdout.is_empty(), "`cat` without input has output");
    Ok(())
}

async fn large_stdin_arrives(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_stdin(Bytes::from(vec![b'x'; 3 * MEGABYTE]));
    let output = run(&*bed.shared().await?, &Command::shell("wc -c"), options).await?;
    ensure_eq!(output.stdout_lossy().trim(), (3 * MEGABYTE).to_string(), "bytes counted");
    Ok(())
}

async fn unread_stdin_is_harmless(bed: &Bed<'_>) -> Checked {
    let options = RunOptions::default().with_stdin(Bytes::from(vec![b'x'; MEGABYTE]));
    let output = run(&*bed.shared().await?, &Command::shell("echo fine; exit 5"), options).await?;
    ensure_eq!(output.status, ExitStatus::Code(5), "status of one that does not read");
    ensure_eq!(output.stdout_lossy(), "fine\n", "its output");
    Ok(())
}

async fn debug_shows_no_output(bed: &Bed<'_>) -> Checked {
    let output = sh(&*bed.shared().await?, "echo s3cr3t").await?;
    ensure!(!format!("{output:?}").contains("s3cr3t"), "Debug shows the output");
    Ok(())
}
