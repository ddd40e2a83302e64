//! What the host asks: readiness, load, environment, settings.

use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderValue};
use hyper::body::Incoming;
use sandbar_wire::envd::{ENVD_VERSION, HttpError, InitRequest, Metrics, tokens_equal};

use crate::http::{Response, empty, json, read_all, token_allows};
use crate::state::State;

/// Largest body of `POST /init`, in bytes.
const INIT_MAX_BYTES: usize = 4 << 20;

/// Processor time at one moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuSample {
    busy: u64,
    total: u64,
}

/// The time in Unix milliseconds.
pub(crate) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(now).unwrap_or(u64::MAX)
}

pub(crate) fn health() -> Response {
    let mut response = empty(204);
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `GET /metrics`. The load is that since the last call, of the first call that since boot.
pub(crate) fn metrics(state: &State) -> Result<Response, HttpError> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| HttpError::new(500, format!("read {what}: {error}"));
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| failed(path, &error));
    let (stat, memory) = (read("/proc/stat")?, read("/proc/meminfo")?);
    let disk = rustix::fs::statvfs("/").map_err(|error| failed("the root file system", &error))?;
    let sample = cpu_sample(&stat);
    let before = state.cpu.replace(Some(sample)).unwrap_or(CpuSample { busy: 0, total: 0 });
    let kib = |name: &str| {
        let value = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let (total, free) = (kib("MemTotal"), kib("MemFree"));
    let cache = kib("Cached") + kib("SReclaimable") + kib("Buffers");
    let used = total.saturating_sub(free).saturating_sub(cache);
    let ts = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(json(
        200,
        &Metrics {
            ts: i64::try_from(ts).unwrap_or(i64::MAX),
            cpu_count: std::thread::available_parallelism()
                .map_or(1, |count| u32::try_from(count.get()).unwrap_or(1)),
            cpu_used_pct: percent(
                sample.busy.saturating_sub(before.busy),
                sample.total.saturating_sub(before.total),
            ),
            mem_total: total,
            mem_used: used,
            mem_cache: cache,
            mem_total_mib: total >> 20,
            mem_used_mib: used >> 20,
            disk_used: (disk.f_blocks.saturating_sub(disk.f_bfree)).saturating_mul(disk.f_frsize),
            disk_total: disk.f_blocks.saturating_mul(disk.f_frsize),
        },
    ))
}

/// Two decimals are enough and keep the answer short.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more precision")]
fn percent(busy: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { (busy as f64 / total as f64 * 10_000.0).round() / 100.0 }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
fn cpu_sample(stat: &str) -> CpuSample {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    let total = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    CpuSample { busy: total - idle, total }
}

pub(crate) fn envs(state: &State) -> Response {
    json(200, &state.sandbox_env())
}

/// `POST /init`: replaces settings. Who knows the present token may; without one, whoever reaches the socket, which
/// only the host side does.
pub(crate) async fn init(
    state: &Rc<State>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response, HttpError> {
    let body = read_all(body, INIT_MAX_BYTES).await?;
    let request: InitRequest = if body.is_empty() {
        InitRequest::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|error| HttpError::new(400, format!("read the body: {error}")))?
    };
    let mut defaults = state.defaults.borrow_mut();
    if let Some(token) = &defaults.token {
        let same = request.access_token.as_ref().is_some_and(|given| tokens_equal(token, given));
        if !same && !matches!(token_allows(headers, token), Some(Ok(()))) {
            return Err(HttpError::new(401, "unauthorized access, init needs the present access token"));
        }
    }
    if request.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
        return Err(HttpError::new(501, "volume mounts can't be added to a running sandbox"));
    }
    if request.ca_bundle.as_ref().is_some_and(|bundle| !bundle.is_empty()) {
        return Err(HttpError::new(501, "a CA bundle can't be added to a running sandbox"));
    }
    let is_old = matches!((request.timestamp, defaults.timestamp), (Some(new), Some(known)) if new <= known);
    if !is_old {
        state.quiet.never();
        defaults.timestamp = request.timestamp.or(defaults.timestamp);
        if let Some(env) = request.env_vars {
            defaults.env = env;
        }
        if let Some(token) = request.access_token.filter(|token| !token.is_empty()) {
            defaults.token = Some(token);
        }
        if let Some(user) = request.default_user.filter(|user| !user.is_empty()) {
            defaults.user = user;
        }
        if let Some(workdir) = request.default_workdir {
            defaults.workdir = Some(workdir).filter(|workdir| !workdir.is_empty());
        }
    }
    let mut response = empty(204);
    response.headers_mut().insert("x-envd-version", HeaderValue::from_static(ENVD_VERSION));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_what_is_not_idle() {
        let sample = cpu_sample("cpu  10 0 10 60 20 0 0 0 5 5\ncpu0 1\n");
        assert_eq!((sample.busy, sample.total), (20, 100));
        assert!((percent(sample.busy, sample.total) - 20.0).abs() < f64::EPSILON);
        assert!(percent(0, 0).abs() < f64::EPSILON);
    }
}
