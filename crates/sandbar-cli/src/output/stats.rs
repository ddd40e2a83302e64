use sandbar::{MetricsSample, SandboxId, SandboxName};
use serde::Serialize;
use serde_json::{Value, json};

use crate::output::columns;
use crate::output::time::rfc3339;

/// Version of the JSON form.
const FORM: u32 = 1;

/// What one sandbox uses.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) id: SandboxId,
    pub(crate) name: Option<SandboxName>,
    pub(crate) sample: MetricsSample,
    /// Cores used since the measurement before, where there was one.
    pub(crate) share: Option<f64>,
}

/// The form of decision 0004.
#[derive(Debug, Serialize)]
pub(crate) struct StatsJson {
    version: u32,
    sandboxes: Vec<Value>,
}

impl StatsJson {
    pub(crate) fn new(measured: &[Measured]) -> Self {
        Self { version: FORM, sandboxes: measured.iter().map(one).collect() }
    }
}

fn one(measured: &Measured) -> Value {
    let Measured { id, name, sample, share } = measured;
    let MetricsSample {
        at,
        cpu_seconds,
        cpu_count,
        memory_bytes,
        memory_peak_bytes,
        memory_limit_bytes,
        disk_bytes,
        processes,
    } = sample;
    json!({
        "id": id,
        "name": name,
        "at": rfc3339(*at),
        "cpu_seconds": cpu_seconds,
        "cpu_percent": share.map(|share| share * 100.0),
        "cpu_count": cpu_count,
        "memory_bytes": memory_bytes,
        "memory_peak_bytes": memory_peak_bytes,
        "memory_limit_bytes": memory_limit_bytes,
        "disk_bytes": disk_bytes,
        "processes": processes,
    })
}

/// What sandboxes use as a table for a person, with the share of a core where that is of interest.
pub(crate) fn stats_table(measured: &[Measured], shares: bool) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |one: &Measured| {
        let sample = &one.sample;
        [
            one.id.to_string(),
            or_dash(one.name.as_ref().map(ToString::to_string)),
            or_dash(sample.cpu_seconds.map(|seconds| format!("{seconds:.2}s"))),
            or_dash(one.share.map(|share| format!("{:.1}%", share * 100.0))),
            or_dash(sample.memory_bytes.map(short_size)),
            or_dash(sample.memory_peak_bytes.map(short_size)),
            or_dash(sample.memory_limit_bytes.map(short_size)),
            or_dash(sample.disk_bytes.map(short_size)),
            or_dash(sample.processes.map(|count| count.to_string())),
        ]
    };
    let rows = measured.iter().map(row);
    if shares {
        let headings = ["ID", "NAME", "CPU", "CPU%", "MEMORY", "PEAK", "LIMIT", "DISK", "PROCESSES"];
        return columns(headings, &rows.collect::<Vec<_>>());
    }
    let headings = ["ID", "NAME", "CPU", "MEMORY", "PEAK", "LIMIT", "DISK", "PROCESSES"];
    let without = |[id, name, cpu, _, rest @ ..]: [String; 9]| {
        let [memory, peak, limit, disk, processes] = rest;
        [id, name, cpu, memory, peak, limit, disk, processes]
    };
    columns(headings, &rows.map(without).collect::<Vec<_>>())
}

/// Bytes in the largest unit of which there is one, with at most one digit after the point.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return format!("{bytes}");
    };
    // Cut, not rounded: 1023.99K is never written as 1024.0K.
    let tenths = (bytes >> (shift - 10)) * 10 / 1024;
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        tenth => format!("{}.{tenth}{unit}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1536, "1.5K"),
            ((1 << 20) - 1, "1023.9K"),
            (256 << 20, "256M"),
            (u64::MAX, "16777215.9T"),
        ] {
            assert_eq!(short_size(bytes), text);
        }
    }

    #[test]
    fn unknown_is_a_dash_and_null() {
        let sample = MetricsSample {
            at: jiff::Timestamp::UNIX_EPOCH,
            cpu_seconds: None,
            cpu_count: None,
            memory_bytes: Some(1 << 20),
            memory_peak_bytes: None,
            memory_limit_bytes: None,
            disk_bytes: Some(0),
            processes: None,
        };
        let one = [Measured { id: SandboxId::new("s1").unwrap(), name: None, sample, share: None }];
        let table = "ID  NAME  CPU  MEMORY  PEAK  LIMIT  DISK  PROCESSES\ns1  -     -    1M      -     -      0     -\n";
        assert_eq!(stats_table(&one, false), table);
        assert!(stats_table(&one, true).contains("CPU%"));
        let form = serde_json::to_value(StatsJson::new(&one)).unwrap();
        assert!(
            form["sandboxes"][0]["cpu_seconds"].is_null() && form["sandboxes"][0]["cpu_percent"].is_null()
        );
        assert_eq!(form["sandboxes"][0]["disk_bytes"], 0);
    }
}
