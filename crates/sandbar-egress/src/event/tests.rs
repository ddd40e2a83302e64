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
    assert!(kept.take().is_empty() && recorder.held().refused.kinds.is_empty());
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
    assert!(recorder.held().refused.kinds.len() <= REFUSALS + 1);
    recorder.flush(start + WINDOW);
    let told = kept.take();
    assert!(told.iter().all(|d| d.name.is_none() || d.repeated == 0), "each was asked for once");
    let shared = told.iter().find(|d| d.repeated > 0).unwrap();
    assert_eq!((shared.port, shared.detail.as_deref()), (None, Some("various")));
    assert!(told.len() <= REFUSALS + 1, "{}", told.len());
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

#[test]
fn a_flood_of_denials_hides_nothing_that_was_reached() {
    const REACHED: u64 = 1500;
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for number in 0..10_000 {
        recorder.tell_at(denied(&format!("n{number}.test")), start);
        let asked = decision(DecisionKind::Dns, Verdict::Allowed, DecisionReason::Rule);
        recorder.tell_at(Decision { name: Some(format!("n{number}.test")), ..asked }, start);
    }
    kept.take();
    for number in 0..REACHED {
        let reached = Decision {
            name: Some(format!("n{number}.test")),
            ..decision(DecisionKind::Tcp, Verdict::Allowed, DecisionReason::Rule)
        };
        recorder.tell_at(reached.clone(), start);
        recorder.tell_at(reached, start);
    }
    let told = kept.take();
    assert_eq!(told.len() as u64, REACHED);
    assert!((0..REACHED).all(|number| told.iter().any(|d| d.name == Some(format!("n{number}.test")))));
    recorder.flush(start + WINDOW);
    let passed =
        kept.take().into_iter().filter(|d| d.kind == DecisionKind::Tcp && d.verdict == Verdict::Allowed);
    assert_eq!(passed.filter(|d| d.name.is_some() && d.repeated == 0).count() as u64, REACHED);
}

#[test]
fn what_is_told_of_many_is_true_of_each() {
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for what in ["one", "other"] {
        recorder.tell_at(Decision { detail: Some(what.to_owned()), ..denied("a.test") }, start);
    }
    assert_eq!(kept.take().len(), 2);
    // So many ends that not each is told: those of one host are told together, with its name.
    for number in 0..2000 {
        let end = decision(DecisionKind::Tcp, Verdict::Closed, DecisionReason::Finished);
        recorder.tell_at(
            Decision { name: Some(format!("n{}.test", number % 2)), bytes_out: Some(1), ..end },
            start,
        );
    }
    let at_once = kept.take();
    recorder.flush(start + WINDOW);
    let together = kept.take();
    assert_eq!((at_once.len(), together.len()), (1000, 2));
    assert!(together.iter().all(|d| d.name.is_some() && d.repeated == 499 && d.bytes_out == Some(500)));
}

#[test]
fn what_passes_has_a_bound_too() {
    let kept = Arc::new(Kept::default());
    let recorder = Recorder::new(kept.clone());
    let start = Instant::now();
    for number in 0..2 * PASSAGES {
        let reached = decision(DecisionKind::Tcp, Verdict::Allowed, DecisionReason::Rule);
        recorder.tell_at(Decision { name: Some(format!("n{number}.test")), ..reached }, start);
    }
    assert_eq!((kept.take().len(), recorder.held().passed.kinds.len()), (PASSAGES, PASSAGES + 1));
}
