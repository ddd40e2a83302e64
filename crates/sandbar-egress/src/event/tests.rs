use super::*;

#[derive(Default)]
struct Kept(Mutex<Vec<Decision>>);

impl DecisionSink for Kept {
    fn tell(&self, decision: Decision) {
        self.0.lock().unwrap().push(decision);
    }
}

impl Kept {
    fn take(&self) -> Vec<Decision> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn denied(name: &str) -> Decision {
    let denied = decision(DecisionKind::Tcp, Verdict::Denied, DecisionReason::NotAllowed);
    Decision { name: Some(name.to_owned()), port: Some(443), ..denied }
}

#[test]
fn a_denial_that_repeats_is_told_once_and_then_counted() {
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for _ in 0..100 {
        recorder.tell_at(denied("a.test"), start);
    }
    recorder.tell_at(denied("b.test"), start);
    let told = kept.take();
    assert_eq!(told.iter().map(|d| d.repeated).collect::<Vec<_>>(), [0, 0]);
    recorder.flush(start + WINDOW / 2);
    assert!(kept.take().is_empty());
    recorder.flush(start + WINDOW);
    let told = kept.take();
    assert_eq!((told.len(), told[0].repeated, told[0].name.as_deref()), (1, 98, Some("a.test")));
    recorder.flush(start + WINDOW * 3);
    assert!(kept.take().is_empty() && recorder.held().kinds.is_empty());
    assert_eq!(recorder.counters().read(0).denied, 101);
}

#[test]
fn what_comes_after_the_window_tells_how_many_there_were() {
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for _ in 0..4 {
        recorder.tell_at(denied("a.test"), start);
    }
    recorder.tell_at(denied("a.test"), start + WINDOW);
    assert_eq!(kept.take().iter().map(|d| d.repeated).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn a_flood_of_different_denials_is_bounded_and_counted() {
    const FLOOD: u64 = 10_000;
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for number in 0..FLOOD {
        recorder.tell_at(denied(&format!("n{number}.test")), start);
    }
    assert!(recorder.held().kinds.len() <= KINDS + 1);
    recorder.flush(start + WINDOW);
    let told = kept.take();
    assert!(told.len() <= KINDS + 1, "{}", told.len());
    assert_eq!(told.iter().map(|d| 1 + d.repeated).sum::<u64>(), FLOOD);
}

#[test]
fn ends_of_flows_are_told_each_and_in_a_flood_their_bytes_together() {
    const FLOOD: u64 = 5000;
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for _ in 0..FLOOD {
        let end = decision(DecisionKind::Tcp, Verdict::Closed, DecisionReason::Finished);
        recorder.tell_at(Decision { bytes_out: Some(2), bytes_in: Some(3), ..end }, start);
    }
    assert_eq!(kept.0.lock().unwrap().len(), 1000);
    recorder.flush(start + WINDOW);
    let told = kept.take();
    assert_eq!(told.iter().filter_map(|d| d.bytes_out).sum::<u64>(), 2 * FLOOD);
    assert_eq!(told.iter().filter_map(|d| d.bytes_in).sum::<u64>(), 3 * FLOOD);
    assert_eq!(told.iter().map(|d| 1 + d.repeated).sum::<u64>(), FLOOD);
}
