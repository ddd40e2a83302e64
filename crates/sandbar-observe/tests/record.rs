//! The record under many processes, under `kill -9` and on a full disk.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sandbar_observe::{AuditReader, Line, MIN_MAX_BYTES};

/// Longest time that anything here waits for something else.
const PATIENCE: Duration = Duration::from_secs(60);

/// The example that writes; cargo builds it with the tests.
fn writer() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let build = own.parent().and_then(Path::parent).expect("a folder of a build");
    let example = build.join("examples/append");
    assert!(example.exists(), "build the examples first: cargo build -p sandbar-observe --examples");
    example
}

fn start(file: &Path, name: &str, count: u64, rest: &[&str]) -> Child {
    let mut command = Command::new(writer());
    command.arg(file).arg(name).arg(count.to_string()).args(rest).stdout(Stdio::piped());
    command.spawn().expect("the example starts")
}

/// The numbers by writer, in the order of the record, and how many lines were torn.
fn read(reader: &mut AuditReader) -> (BTreeMap<String, Vec<u64>>, usize) {
    let (mut numbers, mut torn) = (BTreeMap::<_, Vec<_>>::new(), 0);
    while let Some(line) = reader.next_line().expect("a line") {
        match line {
            Line::Event(event, _) => {
                let number = event.detail["number"].as_u64().expect("a number");
                numbers.entry(event.actor.name.expect("a writer")).or_default().push(number);
            }
            Line::Torn(_) => torn += 1,
            other => panic!("{other:?}"),
        }
    }
    (numbers, torn)
}

#[test]
fn twenty_processes_write_whole_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let writers: Vec<_> = (0..20)
        .map(|n| {
            let child = start(&file, &format!("w{n}"), 200, &[]);
            std::thread::spawn(move || child.wait_with_output().expect("an end"))
        })
        .collect();
    for writer in writers {
        assert!(writer.join().expect("joined").status.success());
    }
    let (numbers, torn) = read(&mut AuditReader::open(&file).expect("a record"));
    assert_eq!((numbers.len(), torn), (20, 0));
    for (name, numbers) in numbers {
        assert_eq!(numbers, (0..200).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn rotation_under_many_writers_loses_nothing_also_for_who_reads_meanwhile() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let size = MIN_MAX_BYTES.to_string();
    let mut writers: Vec<_> = (0..8)
        .map(|n| {
            let child = start(&file, &format!("w{n}"), 400, &[&size, "500"]);
            std::thread::spawn(move || child.wait_with_output().expect("an end"))
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    let mut reader = loop {
        match AuditReader::open(&file) {
            Ok(reader) => break reader,
            Err(cause) => assert!(Instant::now() < end, "{cause}"),
        }
    };
    let mut seen = BTreeMap::<String, Vec<u64>>::new();
    let mut more = |reader: &mut AuditReader| {
        let (numbers, torn) = read(reader);
        assert_eq!(torn, 0);
        for (name, numbers) in numbers {
            seen.entry(name).or_default().extend(numbers);
        }
    };
    while !writers.is_empty() {
        more(&mut reader);
        let (over, live): (Vec<_>, Vec<_>) =
            writers.into_iter().partition(std::thread::JoinHandle::is_finished);
        for writer in over {
            let output = writer.join().expect("joined");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
        writers = live;
        assert!(Instant::now() < end, "the writers do not end");
    }
    more(&mut reader);
    let expected: BTreeMap<_, _> = (0..8).map(|n| (format!("w{n}"), (0..400).collect::<Vec<_>>())).collect();
    assert!(seen == expected, "the reader beside the writers missed some: {:?}", counts(&seen));
    let (whole, torn) = read(&mut AuditReader::open(&file).expect("a record"));
    assert!(whole == expected && torn == 0, "{:?}", counts(&whole));
    assert!(folder.path().join("audit.jsonl.5").exists(), "it did not rotate");
}

fn counts(numbers: &BTreeMap<String, Vec<u64>>) -> Vec<usize> {
    numbers.values().map(Vec::len).collect()
}

#[test]
fn what_a_killed_writer_had_written_stays_and_spoils_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let size = MIN_MAX_BYTES.to_string();
    let mut told = BTreeMap::new();
    for round in 0..10 {
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let name = format!("r{round}w{n}");
                (name.clone(), start(&file, &name, u64::MAX, &[&size, "1000"]))
            })
            .collect();
        for (n, (name, mut child)) in writers.into_iter().enumerate() {
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            // Each is killed in its midst, after another number of lines.
            let mut last = None;
            for line in lines.by_ref().take(20 + 7 * n + round) {
                last = Some(line.expect("a line"));
            }
            child.kill().expect("killed");
            child.wait().expect("an end");
            for line in lines.map_while(Result::ok) {
                last = Some(line);
            }
            told.insert(name, last.expect("a number").parse::<u64>().expect("a number"));
        }
    }
    let after = start(&file, "after", 5, &[&size, "1000"]).wait_with_output().expect("an end");
    assert!(after.status.success(), "{}", String::from_utf8_lossy(&after.stdout));
    let (numbers, torn) = read(&mut AuditReader::open(&file).expect("a record"));
    assert_eq!(numbers["after"], [0, 1, 2, 3, 4]);
    // At most one line of each that was killed.
    assert!(torn <= 40, "{torn}");
    for (name, last) in told {
        // What it told stands there, whole and in order; one more may, of which it could not tell.
        let numbers = &numbers[&name];
        assert_eq!(*numbers, (0..u64::try_from(numbers.len()).expect("few")).collect::<Vec<_>>(), "{name}");
        assert!(
            u64::try_from(numbers.len()).expect("few") > last,
            "{name}: {} lines, told {last}",
            numbers.len()
        );
    }
}

#[test]
fn on_a_full_disk_a_line_is_whole_or_not_there() {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size=256k,mode=700 audit-test "$1" || exit 77
        dd if=/dev/zero of="$1/more" bs=1k count=64 2>/dev/null
        "$2" "$1/audit.jsonl" first 100000 >"$3/first"; echo "$?" >"$3/first-code"
        "$2" "$1/audit.jsonl" full 100 >"$3/full"; echo "$?" >"$3/full-code"
        rm "$1/more"
        "$2" "$1/audit.jsonl" rotated 1 100000 2 >"$3/rotated"; echo "$?" >"$3/rotated-code"
        cp "$1"/audit.jsonl* "$3"
    "#;
    let folder = tempfile::tempdir().expect("a folder");
    let (disk, out) = (folder.path().join("disk"), folder.path().join("out"));
    std::fs::create_dir(&disk).and_then(|()| std::fs::create_dir(&out)).expect("folders");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-uc", SCRIPT, "sh"]);
    let output = command.arg(&disk).arg(writer()).arg(&out).output().expect("unshare starts");
    if matches!(output.status.code(), Some(1 | 77)) {
        println!("skipped: no disk of its own here: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let text = |name: &str| std::fs::read_to_string(out.join(name)).expect("a file");
    assert_eq!((text("first-code").trim(), text("full-code").trim()), ("1", "1"));
    let refusal = text("first").lines().last().expect("a line").to_owned();
    assert!(refusal.starts_with("error LimitExceeded") && refusal.contains("can't be written"), "{refusal}");
    assert!(text("full").contains("error LimitExceeded"), "{}", text("full"));
    assert_eq!((text("rotated-code").trim(), text("rotated").trim()), ("0", "0"));
    let (numbers, torn) = read(&mut AuditReader::open(out.join("audit.jsonl")).expect("a record"));
    let told = u64::try_from(text("first").lines().count() - 1).expect("few");
    assert!(told > 100, "{told}");
    assert_eq!((torn, &numbers["first"]), (0, &(0..told).collect::<Vec<_>>()));
    assert_eq!(numbers["rotated"], [0]);
    // What still fitted into the last block.
    let told = u64::try_from(text("full").lines().count() - 1).expect("few");
    assert_eq!(numbers.get("full").cloned().unwrap_or_default(), (0..told).collect::<Vec<_>>());
}
