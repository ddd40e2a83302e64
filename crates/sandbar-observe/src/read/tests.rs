use std::io::Write;
use std::path::Path;

use super::*;
use crate::log::MIN_MAX_BYTES;
use crate::{Actor, AuditConfig, AuditLog, Event, Role};

fn event(number: usize) -> Event {
    Event::note("test", "memory", Actor::this_process(Role::Caller, None)).with_detail("number", number)
}

fn numbers(reader: &mut AuditReader) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        numbers.extend(line.event().and_then(|event| event.detail["number"].as_u64()));
    }
    numbers
}

fn raw(path: &Path, bytes: &[u8]) {
    std::fs::File::options().append(true).create(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn it_goes_on_where_it_was_across_a_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    assert_eq!(AuditReader::open(&path).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let log = AuditLog::open(AuditConfig::new(&path).with_max_bytes(MIN_MAX_BYTES).with_keep(50)).unwrap();
    log.append(&event(0)).unwrap();
    let mut reader = AuditReader::open(&path).unwrap();
    assert_eq!(numbers(&mut reader), [0]);
    assert!(numbers(&mut reader).is_empty());
    // Several files' worth between two looks.
    for number in 1..1000 {
        log.append(&event(number)).unwrap();
    }
    assert!(folder.path().join("audit.jsonl.3").exists());
    assert_eq!(numbers(&mut reader), (1..1000).collect::<Vec<_>>());
    log.append(&event(1000)).unwrap();
    assert_eq!(numbers(&mut reader), [1000]);
    assert_eq!(numbers(&mut AuditReader::open(&path).unwrap()), (0..=1000).collect::<Vec<_>>());
}

#[test]
fn what_was_rotated_away_under_it_is_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let log = AuditLog::open(AuditConfig::new(&path).with_max_bytes(MIN_MAX_BYTES).with_keep(1)).unwrap();
    log.append(&event(0)).unwrap();
    let mut reader = AuditReader::open(&path).unwrap();
    assert_eq!(numbers(&mut reader), [0]);
    for number in 1..2000 {
        log.append(&event(number)).unwrap();
    }
    // The rest of its own file is still there, since it is open.
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        lines.push(line);
    }
    assert_eq!(lines.iter().filter(|line| **line == Line::Gap).count(), 1);
    assert_eq!(lines.last().unwrap().event().unwrap().detail["number"], 1999);
}

#[test]
fn torn_lines_are_told_and_spoil_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let log = AuditLog::open(AuditConfig::new(&path)).unwrap();
    log.append(&event(1)).unwrap();
    raw(&path, br#"{"v":1,"at":"20"#);
    let mut reader = AuditReader::open(&path).unwrap();
    assert_eq!(reader.next_line().unwrap().unwrap().event().unwrap().detail["number"], 1);
    assert_eq!(reader.next_line().unwrap(), None);
    assert_eq!(reader.torn_end(), Some(Line::Torn(15)));
    log.append(&event(2)).unwrap();
    raw(&path, b"\xff\xff\n[]\n{\"v\":0}\n\n");
    raw(&path, &vec![b'x'; 3 * crate::MAX_LINE]);
    raw(&path, b"\n{\"v\":2,\"new\":true}\n");
    log.append(&event(3)).unwrap();
    let mut reader = AuditReader::open(&path).unwrap();
    let mut told = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        told.push(match line {
            Line::Event(event, _) => event.detail["number"].to_string(),
            Line::Later(value) => value.to_string(),
            Line::Torn(bytes) => format!("torn {bytes}"),
            Line::Gap => "gap".to_owned(),
        });
    }
    let overlong = format!("torn {}", 3 * crate::MAX_LINE);
    assert_eq!(
        told,
        ["1", "torn 15", "2", "torn 2", "torn 2", "torn 7", &overlong, r#"{"new":true,"v":2}"#, "3"]
    );
    assert_eq!(reader.torn_end(), None);
}
