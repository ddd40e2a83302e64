use std::io::{BufRead, BufReader};

use crate::harness::{Home, both, code, start};

/// Runs `sandbar ARGUMENTS…` with a limit of the shell's.
fn limited(home: &Home, limit: &str, arguments: &[&str]) -> std::process::Output {
    let script = format!("ulimit {limit} && exec \"$@\"");
    home.sandbar_by(&["sh", "-c", &script, "sh"], arguments).output().unwrap()
}

#[test]
fn too_few_open_files_are_told_as_such() {
    let home = Home::new();
    for limit in (4..40).chain([63, 64, 65, 100, 127, 159]) {
        let limit = format!("-n {limit}");
        let output = limited(&home, &limit, &["run", "--", "true"]);
        assert_eq!(code(&output), 125, "{limit}: {}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("open files (`ulimit -n`)") && text.contains("hint: "), "{limit}: {text}");
        assert!(!text.contains("internal error"), "{limit}: {text}");
    }
    home.assert_empty();
    let output = limited(&home, "-n 160", &["run", "--", "echo", "enough"]);
    assert_eq!((code(&output), &output.stdout[..]), (0, &b"enough\n"[..]), "{}", both(&output));
    // What makes no sandbox needs less.
    assert_eq!(code(&limited(&home, "-n 40", &["ls"])), 0);
    assert_eq!(code(&limited(&home, "-n 4", &["version"])), 0);
}

#[test]
fn output_beyond_the_limit_on_file_sizes_is_a_failure_and_not_our_end() {
    let home = Home::new();
    std::fs::create_dir(home.current().join("d")).unwrap();
    std::fs::write(home.current().join("d/big"), vec![b'x'; 2_000_000]).unwrap();
    // In blocks of 512 bytes: enough for a sandbox, and too little for what the command says or what is copied out.
    for (arguments, named) in [
        (&["run", "--", "head", "-c", "2000000", "/dev/zero"][..], "standard output"),
        (&["run", "--mount", "./d:/mnt", "--out", "/mnt/big:x", "--", "true"], "`/mnt/big`"),
    ] {
        let script = "ulimit -f 2000 && exec \"$@\"";
        let mut command = home.sandbar_by(&["sh", "-c", script, "sh"], arguments);
        let file = std::fs::File::create(home.current().join("out")).unwrap();
        let output = command.stdout(file).output().unwrap();
        assert_eq!(code(&output), 125, "{}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("File too large") && text.contains(named), "{text}");
    }
    home.assert_empty();
    let output = limited(&home, "-f 0", &["run", "--", "true"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`ulimit -f`"), "{}", both(&output));
}

#[test]
fn the_least_and_the_most_that_an_option_takes_is_what_works() {
    let home = Home::new();
    let (memory, cpus) = machine();
    for option in [
        ["--memory", "4M"],
        ["--memory", &memory.to_string()],
        ["--cpus", "0.01"],
        ["--cpus", &cpus.to_string()],
        ["--pids", "3"],
        ["--pids", "4194304"],
        ["--disk", "1M"],
        ["--disk", "9223372036854771712"],
    ] {
        let output = home.run(&[&["run"], &option[..], &["--", "true"]].concat());
        assert_eq!(code(&output), 0, "{option:?}: {}", both(&output));
    }
}

/// Memory in bytes and processors of this machine.
fn machine() -> (u64, usize) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let cpus = std::fs::read_to_string("/proc/stat").unwrap();
    (kib << 10, cpus.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count())
}

#[test]
fn what_the_machine_does_not_have_is_usage() {
    let home = Home::new();
    let (memory, cpus) = machine();
    let refused = [
        (["--memory", "99999T"], memory.to_string()),
        (["--cpus", &(cpus + 1).to_string()], format!("at most {cpus}")),
        (["--pids", "2"], "at least 3".to_owned()),
    ];
    let refuse = |arguments: &[&str], named: &str| {
        let output = home.run(arguments);
        let text = both(&output);
        assert_eq!(code(&output), 2, "{arguments:?}: {text}");
        assert!(text.contains(named), "{arguments:?}: {text}");
    };
    for (option, named) in &refused {
        refuse(&[&["create"], &option[..]].concat(), named);
    }
    home.assert_empty();
    let id = home.create(&[]);
    let before = home.json(&["describe", &id, "--json"])["limits"].clone();
    for (option, named) in &refused {
        refuse(&[&["resources", &id], &option[..]].concat(), named);
    }
    assert_eq!(home.json(&["describe", &id, "--json"])["limits"], before);
}

#[test]
fn a_cpu_limit_that_holds_nothing_is_told() {
    let home = Home::new();
    let output = home.run(&["create", "--cpus", "1"]);
    assert_eq!(code(&output), 0, "{}", both(&output));
    let id = String::from_utf8(output.stdout.clone()).unwrap();
    let state = home.json(&["describe", id.trim(), "--json"])["limits"]["cpu"]["state"].clone();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.contains("cpu limit is not enforced here"), state != "enforced", "{state}: {told}");
}

#[test]
fn who_runs_into_the_limit_on_processes_is_told_how_to_raise_it() {
    let home = Home::new();
    let id = home.create(&["--pids", "3"]);
    let mut held = start(&mut home.sandbar(&["exec", &id, "--", "sh", "-c", "echo up; exec sleep 60"]));
    let mut line = String::new();
    BufReader::new(held.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let output = home.run(&["exec", &id, "--", "true"]);
    assert_eq!(code(&output), 125, "{}", both(&output));
    let hint = format!("`sandbar resources {id} --pids N`");
    assert!(both(&output).contains(&hint), "{}", both(&output));
    held.kill().unwrap();
    held.wait().unwrap();
}
