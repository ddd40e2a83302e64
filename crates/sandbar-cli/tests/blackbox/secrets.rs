//! Secrets stand in no process argument, log, error or file of ours.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Home, both, marker, wait_until};

#[test]
fn env_of_a_command_is_in_no_argument_environment_or_file() {
    let home = Home::new();
    let word = marker();
    let id = home.create(&[]);
    let mut holder = home
        .sandbar(&["exec", &id, "-e", "SECRET", "--", "sh", "-c", "echo ready > /tmp/ready; exec sleep 600"])
        .env("SECRET", &word)
        .spawn()
        .expect("exec");
    wait_until("the command runs", Duration::from_secs(20), || {
        home.output(&["exec", &id, "--", "test", "-e", "/tmp/ready"]).status.success()
    });
    let mut seen = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        if contains(&fs::read(entry.path().join("cmdline")).unwrap_or_default(), &word) {
            seen.push(format!("arguments of {pid}"));
        }
        // The caller's own environment is where the test put it; the command's is where it belongs.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let ours = name.starts_with("sandbar-shim") || name.starts_with("sandbar-agent");
        if ours && contains(&fs::read(entry.path().join("environ")).unwrap_or_default(), &word) {
            seen.push(format!("environment of {name} {pid}"));
        }
    }
    walk(home.path(), &mut |path| {
        if contains(&fs::read(path).unwrap_or_default(), &word) {
            seen.push(path.display().to_string());
        }
    });
    assert!(seen.is_empty(), "the secret stands in {seen:?}");
    holder.kill().expect("kill");
    holder.wait().expect("wait");
}

#[test]
fn errors_do_not_repeat_values() {
    let home = Home::new();
    let word = marker();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "GOOD=1\n9BAD={word}").expect("write");
    let path = file.path().to_str().expect("text");
    for arguments in [
        &["run", "--env-file", path, "--", "true"][..],
        &["run", "-e", &format!("9BAD={word}"), "--", "true"],
    ] {
        let output = home.output(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", both(&output));
        assert!(!both(&output).contains(&word), "the value is repeated: {}", both(&output));
    }
}

#[test]
fn control_sockets_and_the_data_folder_are_not_mounted() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("docker.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    // The folder has to exist for the refusal to be about what it is.
    home.text(&["run", "--", "true"]);
    for source in [
        socket.as_path(),
        folder.path(),
        home.path(),
        home.path().parent().expect("a parent"),
        Path::new("/"),
    ] {
        let mount = format!("{}:/mnt", source.display());
        let output = home.output(&["run", "--mount", &mount, "--", "true"]);
        assert!(matches!(output.status.code(), Some(2 | 125)), "{mount}: {}", both(&output));
        assert!(!output.stderr.is_empty(), "{mount} is refused with a reason");
    }
    drop(listener);
    assert_eq!(home.text(&["ls", "--json"]), "[]", "nothing was made");
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, visit),
            Ok(kind) if kind.is_file() => visit(&path),
            _ => {}
        }
    }
}
