use sandbar_wire::envd::{EndEvent, Signal, causes};

/// The code reported where nobody could see the outcome: a failure, as a shell reports a process that was killed.
const UNKNOWN_CODE: i32 = 137;

/// The end event of a raw wait status.
pub(super) fn end_event(status: Option<i32>, timed_out: bool) -> EndEvent {
    let cause = |known: Option<&str>| timed_out.then_some(causes::TIMEOUT).or(known).map(str::to_owned);
    let Some(status) = status.map(std::os::unix::process::ExitStatusExt::from_raw) else {
        let text = "outcome unknown: the process's parent was killed".to_owned();
        return EndEvent {
            exit_code: UNKNOWN_CODE,
            status: text.clone(),
            error: Some(text),
            cause: cause(Some(causes::UNKNOWN)),
            ..EndEvent::default()
        };
    };
    let status: std::process::ExitStatus = status;
    if let Some(code) = status.code() {
        let text = format!("exit status {code}");
        let error = (code != 0).then(|| text.clone());
        return EndEvent {
            exit_code: code,
            exited: true,
            status: text,
            error,
            cause: cause(None),
            signal: None,
        };
    }
    let number = std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or_default();
    let dumped = std::os::unix::process::ExitStatusExt::core_dumped(&status);
    let text = match Signal::description(number) {
        "signal" => format!("signal: {number}"),
        name => format!("signal: {name}{}", if dumped { " (core dumped)" } else { "" }),
    };
    EndEvent {
        exit_code: -1,
        exited: false,
        status: text.clone(),
        error: Some(text),
        signal: u32::try_from(number).ok(),
        cause: cause(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_end() {
        let ok = end_event(Some(0), false);
        assert_eq!((ok.exit_code, ok.exited, ok.error), (0, true, None));
        let three = end_event(Some(3 << 8), false);
        assert_eq!((three.exit_code, three.error.as_deref()), (3, Some("exit status 3")));
        let killed = end_event(Some(9), true);
        assert_eq!((killed.exit_code, killed.exited, killed.signal), (-1, false, Some(9)));
        assert_eq!((killed.status.as_str(), killed.cause.as_deref()), ("signal: killed", Some("timeout")));
        let lost = end_event(None, false);
        assert_eq!((lost.exit_code, lost.exited, lost.cause.as_deref()), (137, false, Some("unknown")));
    }
}
