use proptest::prelude::*;

use super::{BuildFile, BuildInstruction};
use crate::{Command, ErrorKind};

fn parsed(text: &str) -> Vec<BuildInstruction> {
    let file = BuildFile::parse(text).unwrap();
    file.lines().iter().map(|line| line.instruction.clone()).collect()
}

fn refused(text: &str) -> (String, String) {
    let error = BuildFile::parse(text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    (error.message().to_owned(), error.hint().unwrap_or_default().to_owned())
}

#[test]
fn a_file_is_what_it_says() {
    let text = "# made by hand\n\nWORKDIR /app\nCOPY package.json lock.json ./\nRUN npm ci \\\n  # not this\n  --offline\n\
                ENV A=1 B=\"two words\" C='$HOME' D=\\$x\nUSER root\nCOPY src lib\nRUN [\"echo\", \"a b\", \"\\u00e9\"]\nSTART ./serve --port 80\nREADY true";
    let all = parsed(text);
    assert_eq!(all.len(), 9);
    let BuildInstruction::Copy { sources, to, into } = &all[1] else { panic!("{all:?}") };
    assert!(sources == &["package.json", "lock.json"] && to.to_str() == Some("/app") && *into);
    let BuildInstruction::Run(run) = &all[2] else { panic!("{all:?}") };
    assert_eq!(*run, Command::shell("npm ci --offline"));
    let BuildInstruction::Env(env) = &all[3] else { panic!("{all:?}") };
    let values: Vec<_> = env.iter().collect();
    assert_eq!(values, [("A", "1"), ("B", "two words"), ("C", "$HOME"), ("D", "$x")]);
    let BuildInstruction::Copy { to, into, .. } = &all[5] else { panic!("{all:?}") };
    assert!(to.to_str() == Some("/app/lib") && !into);
    let BuildInstruction::Run(run) = &all[6] else { panic!("{all:?}") };
    assert_eq!(*run, Command::new("echo").args(["a b", "é"]));
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, line, word) in [
        ("RUN true\nJUMP\n", 2, "`JUMP` is not an instruction"),
        ("\n\nRUN\n", 3, "expected a command"),
        ("RUN [\"a\", 1]\n", 1, "JSON array of strings"),
        ("RUN []\n", 1, "empty"),
        ("RUN a \\\n\nRUN b\n", 2, "empty line"),
        ("RUN a \\\n", 1, "nothing follows"),
        ("COPY a\n", 1, "SOURCE"),
        ("COPY --from=x a /b\n", 1, "--from=x"),
        ("COPY /etc/passwd /x\n", 1, "absolute"),
        ("COPY a/../../b /x\n", 1, "climbs"),
        ("COPY *.js /x\n", 1, "pattern"),
        ("COPY a b\n", 1, "WORKDIR"),
        ("COPY a /x/../y\n", 1, "climbs"),
        ("ENV A\n", 1, "without `=`"),
        ("ENV 1A=x\n", 1, "variable name"),
        ("ENV A=$HOME\n", 1, "not expanded"),
        ("ENV A=\"x\n", 1, "second one"),
        ("USER a b\n", 1, "one word"),
        ("USER a:b\n", 1, "not a valid"),
        ("START a\nSTART b\n", 2, "line 1"),
        ("RUN a\u{7}\n", 1, "can't stand"),
    ] {
        let (message, _) = refused(text);
        assert!(
            message.starts_with(&format!("line {line}: ")) && message.contains(word),
            "{text:?}: {message}"
        );
    }
    assert!(refused("# nothing\n").0.contains("no instruction"));
    assert!(refused(&"RUN true\n".repeat(300)).0.contains("more than 256"));
    assert!(refused(&"#".repeat(2 << 20)).0.contains("at most"));
}

#[test]
fn words_of_other_formats_get_a_hint_and_values_are_not_shown() {
    for (text, word) in
        [("FROM debian\n", "--base"), ("CMD x\n", "START"), ("run x\n", "`RUN`"), ("HEALTHCHECK x", "READY")]
    {
        assert!(refused(text).1.contains(word), "{text}");
    }
    let (message, hint) = refused("ENV s3cr3t-without-equals\n");
    assert!(!message.contains("s3cr3t") && !hint.contains("s3cr3t"));
    assert!(!refused("ENV A-B=s3cr3t\n").0.contains("s3cr3t"));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in "(?s).{0,300}") {
        super::fuzzing::build_file(text.as_bytes());
    }

    #[test]
    fn text_like_build_files_is_parsed_or_refused(
        lines in prop::collection::vec("(RUN|COPY|ENV|WORKDIR|USER|START|READY|FROM|#) ?[ a-z/.=\"'$\\\\\\[\\]-]{0,24}", 0..12)
    ) {
        super::fuzzing::build_file(lines.join("\n").as_bytes());
    }

    #[test]
    fn quoted_values_come_out_as_they_were(value in "[^\\x00-\\x1f\\x7f-\\x9f]{0,40}") {
        let quoted = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        // A backslash at the end of a line continues it, and inside of quotes it can't be the last.
        let all = parsed(&format!("ENV A=\"{quoted}\""));
        let BuildInstruction::Env(env) = &all[0] else { panic!("{all:?}") };
        prop_assert_eq!(env.get("A"), Some(&*value));
    }
}
