//! Running tests side by side: most of what a test does is to wait for a process.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How many programs run at a time. Each has as many threads of tests as the machine has cores; two of them are what two cores keep busy.
const AT_ONCE: usize = 2;

/// How long one program may take, in seconds: several times the slowest, so that one that hangs is seen before whoever runs this loses patience.
const LONGEST_SECONDS: u64 = 15 * 60;

/// How often it is looked whether a program has ended, in milliseconds.
const LOOK_MILLISECONDS: u64 = 20;

/// A program to run, and what it is called.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) title: String,
    pub(crate) command: Command,
}

/// Runs all of them, the first ones first, and answers what failed. The output of each is shown in one piece when it is done.
pub(crate) fn run(jobs: Vec<Job>) -> Vec<String> {
    let waiting = Mutex::new(VecDeque::from(jobs));
    let failed = Mutex::new(Vec::new());
    let shown = Mutex::new(());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mut job) = next(&waiting) {
                    let began = Instant::now();
                    let (output, ended) = run_one(&mut job.command);
                    let seconds = began.elapsed().as_secs();
                    let _one_at_a_time = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    eprintln!("\n     Running {} ({seconds} s)\n{output}", job.title);
                    if let Err(why) = ended {
                        eprintln!("xtask: {}: {why}", job.title);
                        failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(job.title);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn next(waiting: &Mutex<VecDeque<Job>>) -> Option<Job> {
    waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front()
}

/// What it printed, and how it ended. The output goes to a file: whoever a test leaves behind would keep a pipe open.
fn run_one(command: &mut Command) -> (String, Result<(), String>) {
    let mut output = match temporary() {
        Ok(file) => file,
        Err(why) => return (String::new(), Err(format!("no file for its output: {why}"))),
    };
    let ended = wait(command, &output)
        .and_then(|status| if status.success() { Ok(()) } else { Err(format!("ended with {status}")) });
    let mut bytes = Vec::new();
    let read = output.rewind().and_then(|()| output.read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match read {
        Ok(_) => (text, ended),
        Err(why) => (text, ended.and(Err(format!("its output can't be read: {why}")))),
    }
}

fn wait(command: &mut Command, output: &File) -> Result<ExitStatus, String> {
    let copy = || output.try_clone().map_err(|e| format!("its output can't be opened: {e}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(copy()?)
        .stderr(copy()?)
        .spawn()
        .map_err(|e| format!("could not be started: {e}"))?;
    let end = Instant::now() + Duration::from_secs(LONGEST_SECONDS);
    loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("could not be waited for: {e}"))? {
            return Ok(status);
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("was not done within {LONGEST_SECONDS} s, and killed"));
        }
        std::thread::sleep(Duration::from_millis(LOOK_MILLISECONDS));
    }
}

/// A file without a name.
fn temporary() -> std::io::Result<File> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("sbt-{}-{}.out", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(title: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { title: title.to_owned(), command }
    }

    #[test]
    fn every_one_runs_and_those_that_fail_are_named() {
        let mut failed = run(vec![
            job("good", "exit 0"),
            job("bad", "echo why; exit 3"),
            Job { title: "missing".to_owned(), command: Command::new("/nonexistent/program") },
            job("last", "kill -9 $$"),
        ]);
        failed.sort();
        assert_eq!(failed, ["bad", "last", "missing"]);
    }

    #[test]
    fn output_is_whole_and_in_order() {
        let (text, ended) = run_one(&mut job("two", "echo one; echo two >&2; echo three").command);
        assert_eq!((text.as_str(), ended), ("one\ntwo\nthree\n", Ok(())));
    }

    #[test]
    fn who_is_left_behind_is_not_waited_for() {
        let (text, ended) = run_one(&mut job("parent", "sleep 60 & echo $!").command);
        assert_eq!(ended, Ok(()));
        let left = text.trim().to_owned();
        assert!(Command::new("kill").arg(&left).status().is_ok_and(|status| status.success()), "{left}");
    }
}
