use sandbar_core::MemoryProvider;

use super::*;

fn id(text: &str) -> SandboxId {
    SandboxId::new(text).unwrap()
}

fn flying(before: &Before) -> usize {
    before.flying.iter().map(|entry| entry.count).sum()
}

#[test]
fn a_place_counts_for_those_that_come_later_and_is_given_back() {
    let all = Admissions::default();
    let (first, before) = all.take("t1", 1, None).unwrap();
    assert!(before.flying.is_empty());
    let (second, before) = all.take("t1", 3, None).unwrap();
    assert_eq!(flying(&before), 1);
    assert_eq!(before.flying[0].mark, first.mark);
    assert!(all.take("t2", 1, None).unwrap().1.flying.is_empty());
    drop((first, second));
    assert!(all.open().of_tenant.is_empty());
}

#[test]
fn nothing_is_known_before_the_first_look() {
    let all = Admissions::default();
    assert_eq!(all.take("t", 1, None).unwrap().1.most, None);
    all.looked(all.look(), std::iter::empty());
    assert_eq!(all.take("t", 1, None).unwrap().1.most, Some(Count { running: 0, all: 0 }));
}

#[test]
fn what_began_to_run_counts_until_a_look_that_began_later() {
    let all = Admissions::default();
    all.looked(all.look(), std::iter::empty());
    let count = |but: Option<&SandboxId>| all.take("t", 1, but).unwrap().1.most.unwrap();
    let most = |but: Option<&SandboxId>| count(but).running;
    let (place, _) = all.take("t", 1, None).unwrap();
    let early = all.look();
    place.runs(&id("a"));
    drop(place);
    assert_eq!(most(None), 1);
    assert_eq!(most(Some(&id("a"))), 0, "what is to run is not counted");
    all.looked(early, std::iter::empty());
    assert_eq!(most(None), 1, "that look may not have seen it");
    all.looked(all.look(), std::iter::empty());
    assert_eq!(most(None), 0, "this one would have");
    let (place, _) = all.take("t", 1, None).unwrap();
    place.runs(&id("b"));
    all.sleeps("t", &id("b"));
    drop(place);
    assert_eq!(count(None), Count { running: 0, all: 1 }, "what sleeps is there");
    assert_eq!(count(Some(&id("b"))), Count { running: 0, all: 0 });
    let (place, _) = all.take("t", 1, Some(&id("b"))).unwrap();
    place.runs(&id("b"));
    drop(place);
    assert_eq!(count(None), Count { running: 1, all: 1 }, "it woke");
    all.ended("t", &id("b"));
    assert_eq!(count(None), Count { running: 0, all: 0 });
}

/// A look while places are taken and given back never makes them fewer than those that run.
#[tokio::test]
async fn a_look_counts_what_runs_for_its_tenant_alone() {
    use sandbar_core::{CreateOptions, SandboxProvider as _};
    let provider = MemoryProvider::new();
    let mut ids = Vec::new();
    for (tenant, is_internal) in [("t", false), ("t", false), ("t", true), ("u", false)] {
        let marks = Marks { tenant: tenant.into(), is_internal, ..Marks::default() };
        let labels = marks.to_labels(&sandbar_wire::e2b::Metadata::new()).unwrap();
        let made = provider.create(CreateOptions::new().with_labels(labels)).await.unwrap();
        ids.push(made.id().clone());
    }
    let all = Admissions::default();
    let look = all.look();
    let records = provider.list_all(Query::new()).await.unwrap();
    all.looked(look, marked(&records));
    let most = |tenant: &str| all.take(tenant, 1, None).unwrap().1.most.unwrap().all;
    assert_eq!((most("t"), most("u"), most("v")), (2, 1, 0));
    all.ended("u", &ids[0]);
    assert_eq!(most("t"), 2, "another tenant's place is none of its own");
}
