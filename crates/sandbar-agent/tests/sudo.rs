//! `sudo` as a program, against an agent.

mod support;

use std::path::PathBuf;
use std::process::{Command, Output};

use sandbar_agent::config::Sudo;
use support::{Agent, eventually, is_root, program, run, with_marker};

fn agent(change: impl FnOnce(&mut sandbar_agent::AgentConfig)) -> (Agent, PathBuf) {
    let folder = tempfile::tempdir().unwrap().keep();
    let socket = folder.join("sudo.sock");
    let path = socket.clone();
    let agent = Agent::with(|config| {
        config.sudo_socket = Some(path);
        change(config);
    });
    eventually("the socket is there", || socket.exists());
    (agent, socket)
}

fn sudo(socket: &PathBuf, args: &[&str]) -> Output {
    Command::new(program::path())
        .arg("sudo")
        .arg(socket)
        .args(args)
        .env("SECRET", "s")
        .env("LC_X", "l")
        .output()
        .unwrap()
}

fn may_ask() -> bool {
    let allowed = [0, 1000].contains(&rustix::process::geteuid().as_raw());
    if !allowed {
        eprintln!("skipped: only user ids 0 and 1000 may ask");
    }
    allowed
}

#[test]
fn a_command_runs_as_root() {
    if !is_root() {
        eprintln!("skipped: the agent needs more than one id");
        return;
    }
    let (agent, socket) = agent(|_| {});
    let text = |output: Output| String::from_utf8(output.stdout).unwrap();
    assert_eq!(text(sudo(&socket, &["-n", "id", "-u"])), "0\n");
    assert_eq!(text(sudo(&socket, &["-u", "user", "id", "-u"])), "1000\n");
    let env = text(sudo(&socket, &["A=b c", "env"]));
    let lines: Vec<&str> = env.lines().collect();
    for wanted in ["A=b c", "LC_X=l", "HOME=/root", "USER=root", "E2B_SANDBOX=true"] {
        assert!(lines.contains(&wanted), "{wanted} in {lines:?}");
    }
    assert!(!env.contains("SECRET"));
    assert!(text(sudo(&socket, &["-E", "env"])).contains("SECRET=s"));
    assert_eq!(sudo(&socket, &["sh", "-c", "exit 42"]).status.code(), Some(42));
    assert_eq!(sudo(&socket, &["sh", "-c", "kill -TERM $$"]).status.code(), Some(143));
    let missing = sudo(&socket, &["no-such-program"]);
    assert_eq!(missing.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&missing.stderr), "sudo: no-such-program: command not found\n");
    assert_eq!(text(sudo(&socket, &["-i", "pwd"])), "/root\n");
    assert_eq!(text(sudo(&socket, &["-s", "echo", "a b", "'c"])), "a b 'c\n");
    assert_eq!(sudo(&socket, &["-v"]).status.code(), Some(0));
    assert!(text(sudo(&socket, &["-l"])).contains("NOPASSWD: ALL"));
    assert_eq!(sudo(&socket, &["-u", "nobody-here", "id"]).status.code(), Some(1));
    let cwd = Command::new(program::path())
        .arg("sudo")
        .arg(&socket)
        .arg("pwd")
        .current_dir(agent.home())
        .output()
        .unwrap();
    assert_eq!(text(cwd).trim(), agent.home().to_str().unwrap());
}

#[test]
fn input_passes_and_signals_are_forwarded() {
    if !is_root() {
        eprintln!("skipped: the agent needs more than one id");
        return;
    }
    let (agent, socket) = agent(|_| {});
    let sudo = format!("{} sudo {}", program::path().display(), socket.display());
    run(async {
        let as_root = [("authorization", "Basic cm9vdDo=")];
        let request = support::shell(&format!("seq 1 10000 | {sudo} cat | tail -1"));
        let output = agent.start_process(&request, &as_root).await.unwrap().output().await.unwrap();
        assert_eq!(output.text(), "10000\n", "{output:?}");
    });
    let script = "trap 'exit 5' TERM; echo up; while :; do sleep 0.02; done # 4501";
    let mut child = Command::new(program::path())
        .arg("sudo")
        .arg(&socket)
        .args(["sh", "-c", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut up).unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    drop(agent);
}

#[test]
fn a_command_ends_with_the_program_that_asked() {
    if !is_root() {
        eprintln!("skipped: the agent needs more than one id");
        return;
    }
    let (_agent, socket) = agent(|_| {});
    let mut child =
        Command::new(program::path()).arg("sudo").arg(&socket).args(["sleep", "4511"]).spawn().unwrap();
    eventually("it runs", || with_marker("sleep\x004511").iter().any(|pid| *pid != child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("it is gone", || with_marker("4511").is_empty());
}

#[test]
fn a_refusal_says_why() {
    if !may_ask() {
        return;
    }
    let reason = "this sandbox has a single id; do such and such";
    let (_agent, socket) = agent(|config| config.sudo = Sudo::Denied { reason: reason.into() });
    for args in [&["id"][..], &["-v"]] {
        let output = sudo(&socket, args);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("sudo: {reason}\n"));
    }
}

#[test]
fn garbage_and_strangers_are_refused() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};
    if !may_ask() {
        return;
    }
    let (agent, socket) = agent(|_| {});
    for packet in
        [&b"garbage"[..], b"{}", br#"{"user":"root","action":"run","argv":["id"]}"#, &vec![b'x'; 150_000]]
    {
        let client =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&client, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        send(&client, packet, rustix::net::SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 4096];
        let (count, _) = rustix::net::recv(&client, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]);
        assert!(answer.contains("refused") || answer.contains("allowed") && packet == b"{}", "{answer}");
    }
    if is_root() {
        let folder = socket.parent().unwrap();
        std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let copy = folder.join("program");
        // By another process: a descriptor for writing, inherited by a fork in another test, would make it busy.
        assert!(Command::new("cp").arg(program::path()).arg(&copy).status().unwrap().success());
        let output = Command::new("setpriv")
            .args(["--reuid=1001", "--regid=1001", "--clear-groups"])
            .arg(&copy)
            .arg("sudo")
            .arg(&socket)
            .arg("id")
            .output()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("user id 1001 may not use sudo"),
            "{output:?}"
        );
    }
    drop(agent);
    let gone = sudo(&socket, &["id"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("can't be reached"));
}
