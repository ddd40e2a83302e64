use serde_json::Value;

/// A line that sandbar-bench printed.
#[derive(Debug)]
pub(super) struct Row {
    value: Value,
}

impl Row {
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|why| format!("`{line}`: {why}"))?;
        Ok(Self { value })
    }

    fn text(&self, key: &str) -> &str {
        self.value[key].as_str().unwrap_or_default()
    }

    /// What did not work, if something did not.
    pub(super) fn failure(&self) -> Option<String> {
        let failed = self.value["ours"]["failed"].as_u64().unwrap_or(0);
        let first = self.value["ours"]["first_failure"].as_str().unwrap_or_default();
        (failed > 0).then(|| format!("{}: {failed} times, first: {first}", self.text("what")))
    }

    /// The row of a table.
    pub(super) fn cells(&self) -> Vec<String> {
        let (ours, unit) = (&self.value["ours"], self.text("unit"));
        let peer = &self.value["peer"]["measured"];
        let (count, failed) = (number(ours, "count"), number(ours, "failed"));
        let ratio = self.ratio();
        vec![
            self.text("what").to_owned(),
            unit.to_owned(),
            shown(number(ours, "p50")),
            shown(number(ours, "p95")),
            shown(number(ours, "p99")),
            format!("{count} of {}", count + failed),
            match peer["what"].as_str() {
                Some(what) => {
                    let summary = &peer["summary"];
                    let failed = number(summary, "failed");
                    let failed = if failed > 0.0 { format!(", failed {failed}") } else { String::new() };
                    format!(
                        "{what}: {} / {} / {}{failed}",
                        shown(number(summary, "p50")),
                        shown(number(summary, "p95")),
                        shown(number(summary, "p99"))
                    )
                }
                None => self.value["peer"]["absent"].as_str().unwrap_or_default().to_owned(),
            },
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            self.bar(ratio),
            format!("`cargo xtask bench {}`", self.text("name")),
        ]
    }

    /// Our median in the peer's.
    fn ratio(&self) -> Option<f64> {
        let peer = number(&self.value["peer"]["measured"]["summary"], "p50");
        let ours = number(&self.value["ours"], "p50");
        (peer > 0.0 && ours > 0.0).then(|| ours / peer)
    }

    fn bar(&self, ratio: Option<f64>) -> String {
        let ours = number(&self.value["ours"], "p50");
        let Some((kind, value)) = self.value["bar"].as_object().and_then(|bar| bar.iter().next()) else {
            return "-".to_owned();
        };
        let limit = value.as_f64().unwrap_or(f64::NAN);
        let measured = !ours.is_nan();
        let (text, met) = match kind.as_str() {
            "at_most_times" => (format!("<= {limit} x"), ratio.map(|ratio| ratio <= limit)),
            "at_least_times" => (format!(">= {limit} x"), ratio.map(|ratio| ratio >= limit)),
            "at_most_more" => {
                let more = ours - number(&self.value["peer"]["measured"]["summary"], "p50");
                (
                    format!("<= {limit} more, {} measured", shown(more.max(0.0))),
                    (!more.is_nan()).then_some(more <= limit),
                )
            }
            "at_most" => (format!("<= {limit}"), measured.then_some(ours <= limit)),
            _ => (format!(">= {limit}"), measured.then_some(ours >= limit)),
        };
        match met {
            Some(true) => format!("{text}, met"),
            Some(false) => format!("{text}, **missed**"),
            None => format!("{text}, unknown"),
        }
    }
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(f64::NAN)
}

/// Three digits that count.
fn shown(number: f64) -> String {
    match number {
        _ if number.is_nan() => "-".to_owned(),
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, bar: &str) -> Row {
        let line = format!(
            r#"{{"name":"x","what":"w","unit":"ms","ours":{{"p50":{ours},"p95":1,"p99":1,"count":9,"failed":1,"first_failure":"no"}},
            "peer":{{"measured":{{"what":"p","summary":{{"p50":2.0,"p95":2,"p99":2,"count":1,"failed":0}}}}}},"bar":{bar}}}"#
        );
        Row::parse(&line).unwrap()
    }

    #[test]
    fn bars_are_met_or_missed_and_failures_are_told() {
        assert_eq!(row(3.0, r#"{"at_most_times":1.5}"#).cells()[7..9], ["1.50", "<= 1.5 x, met"]);
        assert!(row(3.1, r#"{"at_most_times":1.5}"#).cells()[8].contains("missed"));
        assert_eq!(row(2.25, r#"{"at_most_more":0.3}"#).cells()[8], "<= 0.3 more, 0.25 measured, met");
        assert!(row(2.5, r#"{"at_most_more":0.3}"#).cells()[8].contains("missed"));
        assert!(row(3.0, r#"{"at_least":4.0}"#).cells()[8].contains("missed"));
        let row = row(1.0, r#"{"at_most":4.0}"#);
        assert_eq!(row.cells()[5], "9 of 10");
        assert!(row.failure().unwrap().contains("1 times, first: no"));
        assert!(Row::parse("x").is_err());
    }
}
