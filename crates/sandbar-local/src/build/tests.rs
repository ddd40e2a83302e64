use sandbar_core::{BuildStep, Command, EnvVars, GuestPath, UserName};

use super::key::Key;
use super::lines::{Lines, Stream};
use super::run::text;
use crate::store::Boot;

fn steps() -> Vec<BuildStep> {
    vec![
        BuildStep::Run(Command::new("a").arg("b")),
        BuildStep::Run(Command::new("ab")),
        BuildStep::Start(Command::new("a").arg("b")),
        BuildStep::Ready(Command::new("a").arg("b")),
        BuildStep::Env(EnvVars::new().with("A", "b").unwrap()),
        BuildStep::Env(EnvVars::new().with("A", "c").unwrap()),
        BuildStep::Workdir(GuestPath::new("/a").unwrap()),
        BuildStep::User(UserName::new("a").unwrap()),
        BuildStep::Copy { tar: bytes::Bytes::new(), to: GuestPath::new("/a").unwrap() },
    ]
}

#[test]
fn a_key_names_all_that_a_step_depends_on() {
    let Ok(base) = Key::of_base(&Boot::host(), None) else {
        println!("skipped: there is no host template on this machine");
        return;
    };
    let mut keys: Vec<_> = steps().iter().map(|step| base.after(step, None)).collect();
    keys.push(base.after(&steps()[8], Some("content")));
    keys.push(keys[0].after(&steps()[0], None));
    keys.push(Key::of_base(&Boot { on_host: false, ..Boot::host() }, None).unwrap());
    for scope in ["a", "b"] {
        let scoped = Key::of_base(&Boot::host(), Some(scope)).unwrap();
        keys.extend([scoped.after(&steps()[0], None), scoped]);
    }
    let mut names: Vec<_> = keys.iter().map(Key::as_str).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), keys.len());
    assert_eq!(base.after(&steps()[0], None), keys[0]);
}

#[test]
fn lines_come_whole_cut_where_they_are_long_and_bounded_in_all() {
    let mut lines = Lines::default();
    assert!(lines.take(Stream::Out, b"on").is_empty());
    assert_eq!(lines.take(Stream::Err, b"other\r\n"), ["other"]);
    assert_eq!(lines.take(Stream::Out, b"e\n\ntwo\nrest"), ["one", "", "two"]);
    assert_eq!(lines.take(Stream::Err, &vec![b'x'; 20_000]).len(), 2);
    assert_eq!(lines.rest().len(), 2);
    assert!(lines.last_words().ends_with("rest / xxxx") || lines.last_words().contains("xxxx"));
    let many = vec![b'\n'; 17 << 20];
    let said = lines.take(Stream::Out, &many);
    assert!(said.len() < many.len() && said.last().unwrap().contains("left out"));
    assert!(lines.take(Stream::Out, b"more\n").is_empty());
}

#[test]
fn what_is_shown_of_a_step_has_no_values() {
    let env = EnvVars::new().with("TOKEN", "s3cr3t").unwrap();
    assert_eq!(text(&BuildStep::Env(env)), "ENV TOKEN");
    assert_eq!(text(&BuildStep::Run(Command::shell("make\tall"))), "RUN make all");
    assert!(text(&BuildStep::Run(Command::shell("x".repeat(999)))).chars().count() < 210);
}
