use crate::harness::{Home, both, code};

/// Runs `sandbar ARGUMENTS…` with a limit of the shell's.
fn limited(home: &Home, limit: &str, arguments: &[&str]) -> std::process::Output {
    let script = format!("ulimit {limit} && exec \"$@\"");
    home.sandbar_by(&["sh", "-c", &script, "sh"], arguments).output().unwrap()
}

#[test]
fn too_few_open_files_are_told_as_such() {
    let home = Home::new();
    for limit in (4..40).chain([63, 64, 65, 100, 127]) {
        let limit = format!("-n {limit}");
        let output = limited(&home, &limit, &["run", "--", "true"]);
        assert_eq!(code(&output), 125, "{limit}: {}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("open files (`ulimit -n`)") && text.contains("hint: "), "{limit}: {text}");
        assert!(!text.contains("internal error"), "{limit}: {text}");
    }
    home.assert_empty();
    let output = limited(&home, "-n 128", &["run", "--", "echo", "enough"]);
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
    for option in [
        ["--memory", "4M"],
        ["--memory", "9223372036854771712"],
        ["--cpus", "0.01"],
        ["--cpus", "8191.999"],
        ["--pids", "4194304"],
        ["--disk", "1M"],
        ["--disk", "9223372036854771712"],
    ] {
        let output = home.run(&[&["run"], &option[..], &["--", "true"]].concat());
        assert_eq!(code(&output), 0, "{option:?}: {}", both(&output));
    }
}
