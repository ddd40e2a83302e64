use super::*;
use crate::control::Reference;
use crate::store::Store;

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}

fn registration(tenant: &str, name: &str, build: &str, tags: &[&str]) -> Registration {
    Registration {
        tenant: tenant.to_owned(),
        fresh_template: format!("id-of-{tenant}-{name}"),
        reference: Some(Reference::parse(name).unwrap()),
        kind: Kind::Build,
        build: build.to_owned(),
        status: BuildStatus::Waiting,
        provider: format!("srv-{build}"),
        tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        sandbox: None,
        cpu_count: Some(2),
        memory_mb: None,
        free_disk_mb: None,
        user: None,
        workdir: None,
        most: 2,
    }
}

async fn found(store: &Store, tenant: &str, name: &str) -> Option<super::rows::Found> {
    store.find_template(tenant, &Reference::parse(name).unwrap()).await.unwrap()
}

async fn built(store: &Store, new: Registration) {
    let (build, provider) = (new.build.clone(), new.provider.clone());
    store.register_build(new).await.unwrap().unwrap();
    assert!(store.start_build(&build).await.unwrap());
    assert!(!store.start_build(&build).await.unwrap());
    assert!(store.finish_build(&build, &provider, Finished::default()).await.unwrap());
}

#[tokio::test]
async fn a_tag_means_the_last_build_that_got_it() {
    let (_folder, store) = store();
    built(&store, registration("t1", "app", "b1", &["default", "v1"])).await;
    built(&store, registration("t1", "app", "b2", &["default"])).await;
    let of = async |name: &str| found(&store, "t1", name).await.unwrap().build.map(|build| build.id);
    assert_eq!(of("app").await.as_deref(), Some("b2"));
    assert_eq!(of("app:v1").await.as_deref(), Some("b1"));
    assert_eq!(of("t1/app:v1").await.as_deref(), Some("b1"));
    assert_eq!(of("app:v2").await, None);
    assert_eq!(found(&store, "t1", "t2/app").await, None);
    assert_eq!(found(&store, "t2", "app").await, None);
    assert_eq!(found(&store, "t2", "id-of-t1-app").await, None);
    assert_eq!(store.doomed_templates().await.unwrap(), [""; 0]);
    built(&store, registration("t1", "app", "b3", &["v1"])).await;
    assert_eq!(store.doomed_templates().await.unwrap(), ["srv-b1"]);
    store.forget_doomed("srv-b1").await.unwrap();

    let app = Reference::parse("app:v1").unwrap();
    assert_eq!(store.remove_template("t2", &app).await.unwrap(), Removal::NoTemplate);
    assert_eq!(store.remove_template("t1", &app).await.unwrap(), Removal::Done(Vec::new()));
    assert_eq!(store.remove_template("t1", &app).await.unwrap(), Removal::NoTag("v1".to_owned()));
    assert!(found(&store, "t1", "app").await.is_some());
    let app = Reference::parse("app").unwrap();
    assert_eq!(store.remove_template("t1", &app).await.unwrap(), Removal::Done(Vec::new()));
    assert_eq!(found(&store, "t1", "app").await, None);
    assert_eq!(store.doomed_templates().await.unwrap(), ["srv-b2", "srv-b3"]);
}

#[tokio::test]
async fn what_a_server_left_in_the_making_has_failed_at_the_next_start() {
    let (_folder, store) = store();
    store.register_build(registration("t1", "app", "b1", &["default"])).await.unwrap().unwrap();
    store.register_build(registration("t1", "other", "b2", &["default"])).await.unwrap().unwrap();
    assert_eq!(store.register_build(registration("t1", "third", "b3", &[])).await.unwrap(), None);
    assert!(store.start_build("b1").await.unwrap());
    assert_eq!(store.fail_interrupted_builds().await.unwrap(), 1);
    let reference = Reference::parse("app").unwrap();
    let (_, build) = store.build("t1", &reference, "b1").await.unwrap().unwrap();
    assert_eq!(build.status, BuildStatus::Error);
    assert!(build.reason.unwrap().contains("build it again"));
    assert_eq!(store.doomed_templates().await.unwrap(), ["srv-b1"]);
    // What it would have made now goes, too.
    assert!(!store.finish_build("b1", "srv-b1", Finished::default()).await.unwrap());
    assert!(store.start_build("b2").await.unwrap(), "one that waits for its files goes on");
}

#[tokio::test]
async fn words_of_a_build_are_given_from_where_one_was() {
    let (_folder, store) = store();
    store.register_build(registration("t1", "app", "b1", &[])).await.unwrap().unwrap();
    let words = [(Level::Info, "a"), (Level::Error, "b"), (Level::Debug, "c")];
    let words = words.map(|(level, text)| LogRow::new(level, None, text.to_owned()));
    store.log_build("b1", words.to_vec()).await.unwrap();
    store
        .log_build("b1", vec![LogRow::new(Level::Info, Some("1".to_owned()), "d".to_owned())])
        .await
        .unwrap();
    store.log_build("unknown", words.to_vec()).await.unwrap();
    let said = async |query: LogQuery| {
        let rows = store.build_logs("b1", query).await.unwrap();
        rows.into_iter().map(|row| row.message).collect::<String>()
    };
    let all = LogQuery { offset: 0, limit: 100, level: Level::Debug, newest_first: false, from: None };
    assert_eq!(said(all).await, "abcd");
    assert_eq!(said(LogQuery { offset: 2, limit: 1, ..all }).await, "c");
    assert_eq!(said(LogQuery { offset: 4, ..all }).await, "");
    assert_eq!(said(LogQuery { level: Level::Info, ..all }).await, "abd");
    assert_eq!(said(LogQuery { newest_first: true, limit: 2, ..all }).await, "dc");
    let future = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(said(LogQuery { from: Some(future), ..all }).await, "");
    assert_eq!(said(LogQuery { from: Some(future), newest_first: true, ..all }).await, "dcba");
}

#[test]
fn stored_times_are_in_the_order_of_their_texts() {
    let at = |nanosecond| stored_time(jiff::Timestamp::new(1, nanosecond).unwrap());
    assert_eq!(at(0), "1970-01-01T00:00:01.000000Z");
    assert!(at(0) < at(1_000) && at(120_000_000) < at(123_000_000));
}
