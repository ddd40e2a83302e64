use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use sandbar_core::ErrorKind;

use super::*;
use crate::{Actor, AuditReader, Event, Role};

fn event(word: &str) -> Event {
    Event::note("test", "memory", Actor::this_process(Role::Caller, Some("tester"))).with_detail("word", word)
}

fn words(path: &Path) -> Vec<String> {
    let mut reader = AuditReader::open(path).unwrap();
    let mut words = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        let event = line.event().unwrap_or_else(|| panic!("{line:?}"));
        words.push(event.detail.get("word").or(event.detail.get("events")).unwrap().to_string());
    }
    words
}

#[test]
fn a_record_and_its_folders_are_the_users_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("new/folder/audit.jsonl");
    AuditLog::open(AuditConfig::new(&path)).unwrap().append(&event("a")).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let kept = fs::read(&path).unwrap();
    AuditLog::open(AuditConfig::new(&path)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), kept);
}

#[test]
fn what_is_not_the_users_alone_is_refused_with_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("audit.jsonl");
    let refused = |path: &Path, why: &str| {
        let error = AuditLog::open(AuditConfig::new(path)).unwrap_err();
        assert!(error.message().contains(why) && error.hint().is_some(), "{error}");
    };
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    refused(&path, "chmod 600");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let link = scratch.path().join("link");
    symlink(&path, &link).unwrap();
    refused(&link, "symbolic link");
    refused(scratch.path(), "can't be written");
    let pipe = scratch.path().join("pipe");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, 0o600.into(), 0).unwrap();
    refused(&pipe, "no regular file");
    refused(Path::new("/dev/null"), "can't be written");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    refused(&path, "others may write to its folder");
}

#[test]
fn what_can_not_be_meant_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let good = AuditConfig::new(scratch.path().join("audit.jsonl"));
    for bad in [
        AuditConfig::new("relative.jsonl"),
        AuditConfig::new("/"),
        good.clone().with_max_bytes(MIN_MAX_BYTES - 1),
        good.clone().with_keep(0),
        good.clone().with_keep(MAX_KEEP + 1),
    ] {
        assert_eq!(AuditLog::open(bad).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert!(good.check().is_ok());
}

#[test]
fn files_make_way_and_only_so_many_are_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("audit.jsonl");
    let config = AuditConfig::new(&path).with_max_bytes(MIN_MAX_BYTES).with_keep(2);
    let log = AuditLog::open(config).unwrap();
    let word = "x".repeat(1000);
    for _ in 0..500 {
        log.append(&event(&word)).unwrap();
    }
    let names: Vec<_> =
        fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in &names {
        assert!(fs::metadata(scratch.path().join(name)).unwrap().len() <= MIN_MAX_BYTES);
    }
    assert!(words(&path).len() > 100);
}

#[test]
fn a_writer_that_lost_its_file_makes_it_again() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("audit.jsonl");
    let log = AuditLog::open(AuditConfig::new(&path)).unwrap();
    log.append(&event("a")).unwrap();
    fs::rename(&path, scratch.path().join("moved")).unwrap();
    log.append(&event("b")).unwrap();
    assert_eq!(words(&path), ["\"b\""]);
}

#[tokio::test]
async fn losses_are_counted_and_told_once_it_works_again() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("folder");
    fs::write(&folder, "in the way").unwrap();
    let path = folder.join("audit.jsonl");
    assert!(AuditLog::open(AuditConfig::new(&path)).is_err());
    let log = AuditLog::open(AuditConfig::new(&path).with_mode(AuditMode::BestEffort)).unwrap();
    for _ in 0..3 {
        assert!(log.record(event("lost")).await.is_err());
    }
    assert_eq!(log.lost(), 3);
    fs::remove_file(&folder).unwrap();
    log.record(event("written")).await.unwrap();
    log.record(event("again")).await.unwrap();
    assert_eq!(words(&path), ["3", "\"written\"", "\"again\""]);
    assert_eq!(log.lost(), 3);
}

#[test]
fn a_writer_that_was_stopped_in_its_middle_holds_nobody_up_for_good() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("audit.jsonl");
    let log = AuditLog::open(AuditConfig::new(&path)).unwrap();
    let other = fs::File::options().append(true).open(&path).unwrap();
    let _held = Exclusive::take(&other, std::time::Instant::now()).unwrap();
    let error = log.append(&event("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("does not let go"), "{error}");
}
