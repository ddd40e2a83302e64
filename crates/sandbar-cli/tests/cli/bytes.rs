use std::io::Read;
use std::process::Stdio;
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::harness::{Home, PATIENCE, both, code, start, wait_until};

#[test]
fn both_streams_pass_and_the_code_is_the_commands() {
    let home = Home::new();
    let output = home.run(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(code(&output), 3, "{}", both(&output));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    for wanted in [0, 1, 2, 124, 125, 126, 127, 128, 255] {
        let output = home.run(&["run", "--", "sh", "-c", &format!("exit {wanted}")]);
        assert_eq!(code(&output), wanted);
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{}", both(&output));
    }
}

#[test]
fn every_byte_passes_in_and_out_unchanged() {
    let home = Home::new();
    let all: Vec<u8> = (0..=255).cycle().take(256 * 40).collect();
    let script = "cat > copy; cat copy; cat copy >&2";
    let output = home.run_with(&["run", "-i", "--", "sh", "-c", script], all.clone());
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert!(output.stdout == all && output.stderr == all);
}

#[test]
fn the_streams_can_be_opened_by_name() {
    let home = Home::new();
    let output = home.run(&["run", "--", "sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn arguments_pass_as_they_are() {
    let home = Home::new();
    let words = ["a b", "", "$HOME", "\"'", "*", "-x", "--", "\n", "ä", "\\"];
    let output = home.run(&[&["run", "--", "printf", "<%s>"], &words[..]].concat());
    let wanted = format!("<{}>", words.join("><"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
}

/// MiB that pass through a sandbox, unless `SANDBAR_SOAK` says otherwise.
const QUICK: u64 = 64;

/// Bytes that repeat themselves nowhere near, the same each time: Marsaglia's xorshift64.
fn numbers(mebibytes: u64) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..mebibytes).map(move |_| {
        let mut chunk = Vec::with_capacity(1 << 20);
        while chunk.len() < 1 << 20 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            chunk.extend_from_slice(&state.to_le_bytes());
        }
        chunk
    })
}

#[test]
fn stdin_passes_whole() {
    let size = std::env::var("SANDBAR_SOAK").map_or(QUICK, |size| size.parse().expect("a number of MiB"));
    let home = Home::new();
    let started = Instant::now();
    let mut child = start(home.sandbar(&["run", "-i", "--", "cat"]).stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    // If it is not taken, what comes out will be missing.
    let writer = std::thread::spawn(move || {
        numbers(size).try_for_each(|chunk| std::io::Write::write_all(&mut stdin, &chunk)).is_ok()
    });
    let mut stdout = child.stdout.take().unwrap();
    let mut back = vec![0; 1 << 20];
    for (index, chunk) in numbers(size).enumerate() {
        stdout.read_exact(&mut back).unwrap_or_else(|error| panic!("MiB {index}: {error}"));
        assert!(back == chunk, "MiB {index} is not what was sent");
    }
    assert_eq!(stdout.read(&mut back).unwrap(), 0, "more came out than went in");
    assert!(writer.join().unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", both(&output));
    eprintln!("{size} MiB through `run -i -- cat` in {:?}", started.elapsed());
}

#[test]
fn sixty_four_mebibytes_pass_whole_from_a_file() {
    let home = Home::new();
    let mut data = vec![0; 64 << 20];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut data).unwrap();
    let hash = Sha256::digest(&data);
    let path = home.current().join("data");
    std::fs::write(&path, &data).unwrap();

    let mut command = home.sandbar(&["run", "-i", "--", "sha256sum"]);
    let output = command.stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    let wanted = format!("{hash:x}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with(&wanted), "{}", both(&output));
}

#[test]
fn without_interactive_the_command_reads_end_of_file() {
    let home = Home::new();
    let output = home.run_with(&["run", "--", "wc", "-c"], b"not for it".to_vec());
    assert_eq!((code(&output), String::from_utf8_lossy(&output.stdout).trim()), (0, "0"));
}

#[test]
fn a_command_that_does_not_read_its_input_does_not_hang() {
    let home = Home::new();
    let output = home.run_with(&["run", "-i", "--", "head", "-c", "3"], vec![b'x'; 8 << 20]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"xxx"[..]), "{}", both(&output));
}

#[test]
fn output_comes_while_the_command_runs() {
    let home = Home::new();
    let script = "echo first; read line; echo \"$line\"";
    let mut child = start(home.sandbar(&["run", "-i", "--", "sh", "-c", script]).stdin(Stdio::piped()));
    let mut first = [0; 6];
    // Would never come if it were held back until the command ends.
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first\n");
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"second\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"second\n"[..]), "{}", both(&output));
}

#[test]
fn a_slow_reader_gets_everything() {
    let home = Home::new();
    let mut child = start(&mut home.sandbar(&["run", "--", "seq", "1", "300000"]));
    let mut stdout = child.stdout.take().unwrap();
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    let started = Instant::now();
    loop {
        let read = stdout.read(&mut chunk).unwrap();
        if read == 0 {
            break;
        }
        text.extend_from_slice(&chunk[..read]);
        assert!(started.elapsed() < PATIENCE);
        // Slower than the command, which has long ended.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let wanted = (1..=300_000).fold(String::new(), |text, number| text + &number.to_string() + "\n");
    assert!(text == wanted.as_bytes());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_ends_the_command_and_leaves_nothing() {
    let home = Home::new();
    let mut child = start(&mut home.sandbar(&["run", "--", "yes"]));
    let mut first = [0; 2];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    wait_until("the end", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 141);
    assert!(output.stderr.is_empty(), "{}", both(&output));
    home.assert_empty();
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let home = Home::new();
    for arguments in [&["version"][..], &["run", "--", "echo", "x"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = home.sandbar(arguments).stdout(full).output().unwrap();
        assert_eq!(code(&output), 125, "{}", both(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{}", both(&output));
    }
}
