use super::{BuildFile, BuildInstruction};
use crate::MAX_BUILD_STEPS;

/// Build files: parsed or refused with the line, the same however its lines end, and what they name is normal.
pub fn build_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parsed = BuildFile::parse(text);
    let unix: String = text.replace("\r\n", "\n");
    if unix.contains('\r') {
        // Not an end of line, and so refused in one of them.
        return;
    }
    let dos = unix.replace('\n', "\r\n");
    match (&parsed, BuildFile::parse(&unix), BuildFile::parse(&dos)) {
        (Ok(file), Ok(unix), Ok(dos)) => {
            let shown = format!("{file:?}");
            assert_eq!(shown, format!("{unix:?}"));
            assert_eq!(shown, format!("{dos:?}"));
        }
        (Err(_), Err(_), Err(_)) => {}
        other => panic!("line ends count: {other:?}"),
    }
    match parsed {
        Ok(file) => {
            assert!(!file.lines().is_empty() && file.lines().len() <= MAX_BUILD_STEPS);
            assert!(file.lines().windows(2).all(|pair| pair[0].line < pair[1].line));
            for line in file.lines() {
                check(&line.instruction);
            }
        }
        Err(error) => {
            assert!(!error.message().chars().any(char::is_control), "{:?}", error.message());
        }
    }
}

fn check(instruction: &BuildInstruction) {
    match instruction {
        BuildInstruction::Run(command)
        | BuildInstruction::Start(command)
        | BuildInstruction::Ready(command) => {
            command.check().expect("a command that can be run");
        }
        BuildInstruction::Copy { sources, .. } => {
            assert!(!sources.is_empty());
            for source in sources {
                assert!(!source.starts_with('/') && !source.split('/').any(|segment| segment == ".."));
            }
        }
        BuildInstruction::Env(env) => assert!(!env.is_empty()),
        BuildInstruction::Workdir(_) | BuildInstruction::User(_) => {}
    }
}
