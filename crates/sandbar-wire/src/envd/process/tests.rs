use proptest::prelude::*;

use super::super::json::round;
use super::*;

#[test]
fn sdk_samples_are_read() {
    let start: StartRequest = serde_json::from_str(
        r#"{"process":{"cmd":"/bin/bash","args":["-l","-c","echo hi"],"envs":{"A":"1"},"cwd":"/tmp"},"stdin":false}"#,
    )
    .unwrap();
    assert_eq!(start.process.args[2], "echo hi");
    assert_eq!((start.stdin, start.pty), (Some(false), None));
    let select: ConnectRequest = serde_json::from_str(r#"{"process":{"pid":"7"},"later":[1]}"#).unwrap();
    assert_eq!(select.process.pid, Some(7));
    let signal: SendSignalRequest =
        serde_json::from_str(r#"{"process":{"pid":99},"signal":"SIGNAL_SIGKILL"}"#).unwrap();
    assert_eq!(signal.signal, Signal::KILL);
    let null: StartRequest =
        serde_json::from_str(r#"{"process":null,"pty":{"size":{"cols":80,"rows":24}}}"#).unwrap();
    assert_eq!(null.pty.unwrap().size.unwrap().cols, 80);
}

#[test]
fn events_look_like_the_samples() {
    let json = |event: ProcessEvent| serde_json::to_string(&event).unwrap();
    assert_eq!(json(ProcessEvent::Start { pid: 42 }), r#"{"event":{"start":{"pid":42}}}"#);
    assert_eq!(json(ProcessEvent::Keepalive), r#"{"event":{"keepalive":{}}}"#);
    let end = EndEvent { exited: true, status: "exit status 0".into(), ..EndEvent::default() };
    assert_eq!(json(ProcessEvent::End(end)), r#"{"event":{"end":{"exited":true,"status":"exit status 0"}}}"#);
    let snake = r#"{"event":{"end":{"exit_code":"-1"},"unheard":{}}}"#;
    let end = EndEvent { exit_code: -1, ..EndEvent::default() };
    assert_eq!(serde_json::from_str::<ProcessEvent>(snake).unwrap(), ProcessEvent::End(end));
    assert_eq!(
        serde_json::from_str::<ProcessEvent>(r#"{"event":{"new":1}}"#).unwrap(),
        ProcessEvent::Unknown
    );
}

#[test]
fn url_safe_and_unpadded_base64_is_read() {
    for text in ["-_8", "+/8=", "+/8"] {
        let input: ProcessInput = serde_json::from_str(&format!(r#"{{"stdin":"{text}"}}"#)).unwrap();
        assert_eq!(input.stdin.unwrap(), vec![0xfb, 0xff]);
    }
    assert!(serde_json::from_str::<ProcessInput>(r#"{"stdin":"*"}"#).is_err());
}

proptest! {
    #[test]
    fn starts_round_trip(
        cmd in ".*", args in prop::collection::vec(".*", 0..4), tag in prop::option::of(".*"),
        stdin in prop::option::of(any::<bool>()), cols in any::<u32>(),
    ) {
        let process = ProcessConfig { cmd, args, ..ProcessConfig::default() };
        let pty = Some(Pty { size: Some(PtySize { cols, rows: 1 }) });
        let request = StartRequest { process, pty, tag, stdin };
        prop_assert_eq!(round(&request), request);
    }

    #[test]
    fn ends_round_trip(exit_code in any::<i32>(), exited in any::<bool>(), error in prop::option::of(".*")) {
        let end = ProcessEvent::End(EndEvent { exit_code, exited, error, ..EndEvent::default() });
        prop_assert_eq!(round(&end), end);
    }

    #[test]
    fn garbage_never_panics(text in ".{0,80}") {
        let _ = serde_json::from_str::<ProcessEvent>(&text);
        let _ = serde_json::from_str::<StreamInput>(&text);
        let _ = serde_json::from_str::<StartRequest>(&text);
    }
}
