use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use sandbar::{EnvVars, GuestPath};

use super::split::{join_colons, split_colons};
use super::*;

pub(crate) fn values(data: &[u8]) {
    let typed = || OsString::from_vec(data.to_vec());
    paths(&typed);
    environment(data);
    if let Ok(text) = std::str::from_utf8(data) {
        numbers(text);
        words(text);
        egress(text);
    }
}

fn paths(typed: &dyn Fn() -> OsString) {
    let parts = split_colons(typed());
    if !parts.iter().any(|part| part.contains(&b':')) {
        assert_eq!(join_colons(&parts), typed(), "without escapes, nothing is lost");
    }
    let whole = |path: &GuestPath| GuestPath::new(path.as_bytes()).is_ok_and(|again| again == *path);
    if let Ok(mount) = Mount::parse(typed()) {
        assert!(!mount.source.as_os_str().is_empty() && whole(&mount.target));
    }
    if let Ok(copy) = CopyIn::parse(typed()) {
        assert!(!copy.source.as_os_str().is_empty() && whole(&copy.target));
    }
    if let Ok(copy) = CopyOut::parse(typed()) {
        assert!(!copy.target.as_os_str().is_empty() && whole(&copy.source) && !copy.source.is_root());
    }
}

fn environment(data: &[u8]) {
    let mut env = EnvVars::new();
    let done = parse_env_file(data, &mut env);
    // Each value stands in the file, after its name.
    for (name, value) in env.iter() {
        let line = format!("{name}={value}");
        assert!(data.windows(line.len()).any(|window| window == line.as_bytes()));
    }
    if let Err(error) = done {
        assert!(error.to_string().starts_with("line "), "{error}");
    }
}

fn numbers(text: &str) {
    if let Ok(Size(bytes)) = text.parse() {
        assert!(bytes > 0 && bytes.to_string().parse() == Ok(Size(bytes)));
    }
    if let Ok(HumanDuration(duration)) = text.parse() {
        assert!(!duration.is_zero() && duration < Duration::from_secs(101 * 366 * 86_400));
        assert_eq!(format!("{}ms", duration.as_millis()).parse(), Ok(HumanDuration(duration)));
    }
    if let Ok(Cpus(millis)) = text.parse() {
        assert_eq!(format!("{}.{:03}", millis / 1000, millis % 1000).parse(), Ok(Cpus(millis)));
    }
    if let Ok(Pids(count)) = text.parse() {
        assert!(count > 0 && count.to_string().parse() == Ok(Pids(count)));
    }
    if let Ok(Port(port)) = text.parse() {
        assert!(port > 0 && port.to_string().parse() == Ok(Port(port)));
    }
    for limit in [text.parse().map(|Memory(bytes)| bytes), text.parse().map(|Disk(bytes)| bytes)] {
        assert!(limit.is_err() || i64::try_from(limit.unwrap_or(u64::MAX)).is_ok());
    }
}

fn words(text: &str) {
    if let Ok(pair) = text.parse::<Pair>() {
        assert_eq!(format!("{}={}", pair.key, pair.value), text);
    }
    let Ok(env) = text.parse::<EnvArg>();
    assert_eq!(format!("{env:?}"), format!("EnvArg({})", env.name), "no value is shown");
    let parts = [Some(&*env.name), env.value.as_deref()];
    assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>().join("="), text);
    if let Ok(state) = text.parse::<StateArg>() {
        assert_eq!(state.0.as_str(), text);
    }
    if let Ok(name) = sandbox_name(text) {
        assert!(name.as_str() == text && !is_shaped_like_an_id(text));
    }
}

fn egress(text: &str) {
    let rules = [text.parse().map(|AllowRule(rule)| rule), text.parse().map(|AllowRange(rule)| rule)];
    for rule in rules.into_iter().flatten() {
        assert_eq!(rule.to_string().parse(), Ok(AllowRule(rule)));
    }
    if let Ok(rule) = text.parse::<DenyRange>() {
        assert_eq!(rule.0.to_string().parse(), Ok(rule));
    }
    if let Ok(peer) = text.parse::<EgressPeer>() {
        assert!(peer.port > 0);
    }
    let Ok(inject) = text.parse::<InjectArg>();
    if let Ok(Inject { header, .. }) = inject.read() {
        assert!(text.contains(&header));
    }
}
