use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::harness::{Home, both, code};

/// What makes no sense is refused before anything is done: exit code 2, a message that says what was expected, nothing created.
#[test]
fn usage_errors() {
    let home = Home::new();
    fs::write(home.current().join("env"), "A=1\nhunter2\n").unwrap();
    fs::write(home.current().join("nul"), b"A=1\nB=hunter2\0\n").unwrap();
    fs::write(home.current().join("policy"), r#"{"rules": {"allow": [], "denny": []}}"#).unwrap();
    fs::create_dir(home.current().join("a")).unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("no_command", &["run"]),
        ("no_command_after_dashes", &["run", "--"]),
        ("empty_command", &["run", "--", ""]),
        ("command_without_dashes", &["run", "true"]),
        ("unknown_option", &["run", "--momory", "1G", "--", "true"]),
        ("unknown_command", &["rnu", "--", "true"]),
        ("bad_size", &["run", "--memory", "12q", "--", "true"]),
        ("zero_size", &["run", "--disk", "0", "--", "true"]),
        ("little_memory", &["run", "--memory", "1", "--", "true"]),
        ("endless_memory", &["run", "--memory", "18446744073709551615", "--", "true"]),
        ("little_disk", &["run", "--disk", "1K", "--", "true"]),
        ("little_cpu", &["run", "--cpus", "0.001", "--", "true"]),
        ("bad_cpus", &["run", "--cpus", "two", "--", "true"]),
        ("too_many_pids", &["run", "--pids", "4294967295", "--", "true"]),
        ("zero_pids", &["run", "--pids", "0", "--", "true"]),
        ("negative_pids", &["run", "--pids=-1", "--", "true"]),
        ("duration_without_unit", &["run", "--timeout", "30", "--", "true"]),
        ("zero_duration", &["run", "--timeout", "0s", "--", "true"]),
        ("endless_duration", &["create", "--deadline", "999999999d"]),
        ("port_zero", &["create", "--port", "0"]),
        ("port_too_high", &["create", "--port", "65536"]),
        ("port_twice", &["create", "-p", "80", "-p", "80"]),
        ("env_name", &["run", "-e", "1A=hunter2", "--", "true"]),
        ("env_not_set", &["run", "-e", "SANDBAR_TEST_NOT_SET", "--", "true"]),
        ("env_file_missing", &["run", "--env-file", "none", "--", "true"]),
        ("env_file_line", &["run", "--env-file", "env", "--", "true"]),
        ("env_file_nul", &["run", "--env-file", "nul", "--", "true"]),
        ("relative_workdir", &["run", "-w", "work", "--", "true"]),
        ("climbing_workdir", &["run", "-w", "/home/../etc", "--", "true"]),
        ("bad_user", &["run", "-u", "a:b", "--", "true"]),
        ("bad_template", &["run", "-t", "../x", "--", "true"]),
        ("bad_name", &["create", "--name", "x y"]),
        ("name_like_an_id", &["create", "--name", "s0123456789abcdefghj"]),
        ("bad_label", &["create", "--label", "team"]),
        ("reserved_label", &["create", "--label", "sandbar.x=1"]),
        ("mount_without_guest", &["run", "--mount", "/tmp", "--", "true"]),
        ("mount_relative_guest", &["run", "--mount", "/tmp:data", "--", "true"]),
        ("mount_climbing_guest", &["run", "--mount", "/tmp:/a/../b", "--", "true"]),
        ("mount_at_root", &["run", "--mount", "/tmp:/", "--", "true"]),
        ("mount_at_proc", &["run", "--mount", "/tmp:/proc", "--", "true"]),
        ("mount_of_nothing", &["run", "--mount", "./none:/a", "--", "true"]),
        ("mount_twice", &["run", "--mount", "/tmp:/a", "--mount", "/usr:/a", "--", "true"]),
        ("copy_without_target", &["run", "--copy", "a", "--", "true"]),
        ("copy_of_nothing", &["run", "--copy", "none:/a", "--", "true"]),
        ("copy_to_relative", &["run", "--copy", "env:a", "--", "true"]),
        ("out_of_relative", &["run", "--out", "a:b", "--", "true"]),
        ("out_over_folder", &["run", "--out", "/tmp/a:.", "--", "true"]),
        ("out_twice", &["run", "--out", "/tmp/b:b", "--out", "/srv/b:.", "--", "true"]),
        ("out_into_file", &["run", "--out", "/tmp/a:env/", "--", "true"]),
        ("replace_nothing", &["run", "--replace", "--", "true"]),
        ("out_into_missing_folder", &["run", "--out", "/tmp/a:none/a", "--", "true"]),
        ("bad_state", &["ls", "--state", "paused"]),
        ("allow_url", &["run", "--allow", "https://example.com/", "--", "true"]),
        ("allow_star", &["create", "--allow", "*"]),
        ("allow_udp_without_port", &["create", "--allow", "example.com/udp"]),
        ("allow_cidr_of_name", &["create", "--allow-cidr", "example.com"]),
        ("deny_without_allow_all", &["create", "--allow", "example.com", "--deny-cidr", "192.0.2.0/24"]),
        (
            "deny_that_does_not_hold",
            &["create", "--allow-all", "--allow-cidr", "192.0.2.0/24", "--deny-cidr", "192.0.2.1"],
        ),
        ("allow_all_and_nothing", &["create", "--allow-all", "--deny-all"]),
        ("policy_missing", &["create", "--egress-policy", "none"]),
        ("policy_misspelt", &["create", "--egress-policy", "policy"]),
        ("inject_value", &["create", "--inject", "api.example.com=authorization:hunter2"]),
        ("inject_nothing", &["create", "--inject", "hunter2"]),
        ("inject_not_set", &["create", "--inject", "api.example.com=authorization:env:SANDBAR_TEST_NOT_SET"]),
        ("network_set_nothing", &["network", "x", "set"]),
        ("network_set_without_id", &["network", "set"]),
        ("why_url", &["egress", "why", "x", "https://example.com/"]),
        ("why_port_zero", &["egress", "why", "x", "example.com:0"]),
        ("verify_bad_host", &["egress", "verify", "--allow", "exa_mple.com"]),
        ("json_inject_value", &["create", "--json", "--inject", "api.example.com=authorization:hunter2"]),
        ("exec_without_id", &["exec", "--", "true"]),
        ("exec_without_command", &["exec", "x"]),
        ("destroy_without_id", &["destroy"]),
        ("unknown_provider", &["--provider", "moon", "ls"]),
        ("empty_provider", &["--provider", "", "ls"]),
        ("tilde_data_folder", &["--provider", "local:~/data", "ls"]),
        ("json_bad_size", &["run", "--json", "--memory", "12q", "--", "true"]),
        ("json_env_file", &["run", "--json", "--env-file", "env", "--", "true"]),
    ];
    for (name, arguments) in cases {
        let output = home.run(arguments);
        assert_eq!(code(&output), 2, "{name}: {}", both(&output));
        assert!(output.stdout.is_empty(), "{name}: {}", both(&output));
        // A value that was typed or stands in a file may be a secret.
        assert!(!both(&output).contains("hunter2"), "{name}: {}", both(&output));
        insta::assert_snapshot!(*name, home.transcribe(arguments, &output));
    }
    home.assert_empty();
}

/// What only the backend can refuse: exit code 125, a message in its words that names what was refused, and nothing created either.
#[test]
fn refusals() {
    let home = Home::new();
    for (named, arguments) in [
        ("no-such-template", &["run", "-t", "no-such-template", "--", "true"][..]),
        ("no-such-template", &["create", "-t", "no-such-template"]),
        ("E2B_API_KEY", &["--provider", "e2b", "ls"]),
        ("no-such-sandbox", &["exec", "no-such-sandbox", "--", "true"]),
        ("nobody-here", &["run", "-u", "nobody-here", "--", "true"]),
        ("/no/such/folder", &["run", "-w", "/no/such/folder", "--", "true"]),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 125, "{arguments:?}: {}", both(&output));
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", both(&output));
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.starts_with("error: ") && words.contains(named), "{arguments:?}: {words}");
        home.assert_empty();
    }
}

#[test]
fn absent_sandboxes_are_told_from_failures() {
    let home = Home::new();
    for (name, arguments) in [
        ("describe_absent", &["describe", "no-such-sandbox"][..]),
        ("destroy_absent", &["destroy", "no-such-sandbox"]),
        ("describe_no_id_at_all", &["describe", "a b\x1b[2J"]),
        ("json_describe_absent", &["describe", "--json", "no-such-sandbox"]),
        ("json_destroy_absent", &["destroy", "--json", "no-such-sandbox", "nor-this"]),
    ] {
        let output = home.run(arguments);
        assert_eq!(code(&output), 1, "{name}: {}", both(&output));
        insta::assert_snapshot!(name, home.transcribe(arguments, &output));
    }
}

#[test]
fn an_argument_that_is_not_text_is_named() {
    let home = Home::new();
    for json in [false, true] {
        let mut command = home.sandbar(if json { &["ls", "--json"] } else { &["ls"] });
        let output = command.arg("--provider").arg(OsStr::from_bytes(b"m\xffn")).output().unwrap();
        assert_eq!(code(&output), 2, "{}", both(&output));
        let text = String::from_utf8_lossy(&output.stderr).replace("\\\\", "\\");
        assert!(text.contains("`m\\xffn` is not UTF-8"), "{text}");
        assert_eq!(text.starts_with('{'), json, "{text}");
    }
}

#[test]
fn a_value_from_the_environment_that_is_not_text_is_refused_without_showing_it() {
    let home = Home::new();
    let mut command = home.sandbar(&["run", "-e", "SECRET", "--", "true"]);
    let output = command.env("SECRET", OsStr::from_bytes(b"hunter2\xff")).output().unwrap();
    assert_eq!(code(&output), 2);
    assert!(both(&output).contains("not UTF-8") && !both(&output).contains("hunter2"), "{}", both(&output));
}
