use std::time::Duration;

use super::{Exit, ProgramContext};
use crate::ExitStatus;
use crate::memory::process::Launch;

pub(super) async fn echo(context: &ProgramContext) -> Exit {
    let (args, newline) = match context.args().split_first() {
        Some((first, rest)) if first == b"-n" => (rest, ""),
        _ => (context.args(), "\n"),
    };
    let mut line = args.join(&b' ');
    line.extend_from_slice(newline.as_bytes());
    context.out(line).await?;
    Ok(0)
}

/// `printf` with `%s`, `%d`, `%b`, `%%` and the escapes `\n \t \r \\ \NNN \0NNN \xHH`; the format is used again while arguments are left.
pub(super) async fn printf(context: &ProgramContext) -> Exit {
    let Some((format, args)) = context.args().split_first() else {
        return context.complain("usage: printf format [arguments]", 2).await;
    };
    let mut args = args.iter();
    let mut text = Vec::new();
    loop {
        let before = args.len();
        let mut rest = format.as_slice();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after.first()) {
                (b'\\', _) => rest = escape(after, &mut text),
                (b'%', Some(b'%')) => {
                    text.push(b'%');
                    rest = &after[1..];
                }
                (b'%', Some(b's' | b'd' | b'b')) => {
                    let argument = args.next().map(Vec::as_slice).unwrap_or_default();
                    match after[0] {
                        b'd' if argument.is_empty() => text.push(b'0'),
                        b'b' => {
                            let mut argument = argument;
                            while let Some((&byte, after)) = argument.split_first() {
                                argument = after;
                                if byte == b'\\' {
                                    argument = escape(after, &mut text);
                                } else {
                                    text.push(byte);
                                }
                            }
                        }
                        _ => text.extend_from_slice(argument),
                    }
                    rest = &after[1..];
                }
                _ => text.push(byte),
            }
        }
        if args.len() == 0 || args.len() == before {
            break;
        }
    }
    context.out(text).await?;
    Ok(0)
}

/// Reads what follows a backslash, pushes the byte it means and answers the rest.
fn escape<'a>(after: &'a [u8], text: &mut Vec<u8>) -> &'a [u8] {
    let number = |digits: &[u8], radix| {
        std::str::from_utf8(digits).ok().and_then(|digits| u32::from_str_radix(digits, radix).ok())
    };
    match after.first() {
        Some(b'0'..=b'7') => {
            let most = if after[0] == b'0' { 4 } else { 3 };
            let count = after.iter().take(most).take_while(|b| (b'0'..=b'7').contains(b)).count();
            text.extend(number(&after[..count], 8).map(|n| n.to_le_bytes()[0]));
            &after[count..]
        }
        Some(b'x') => {
            let count = after[1..].iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
            text.extend(number(&after[1..=count], 16).map(|n| n.to_le_bytes()[0]));
            &after[1 + count..]
        }
        Some(&letter) => {
            match letter {
                b'n' => text.push(b'\n'),
                b't' => text.push(b'\t'),
                b'r' => text.push(b'\r'),
                b'\\' => text.push(b'\\'),
                other => text.extend([b'\\', other]),
            }
            &after[1..]
        }
        None => {
            text.push(b'\\');
            after
        }
    }
}

pub(super) async fn pwd(context: &ProgramContext) -> Exit {
    context.out([context.cwd.as_slice(), b"\n"].concat()).await?;
    Ok(0)
}

/// `id`, `id -u`, `id -un`, `whoami`.
pub(super) async fn id(context: &ProgramContext) -> Exit {
    let uid = if context.user == "root" { 0 } else { 1000 };
    let user = context.user;
    let text = match (context.argv[0].ends_with(b"whoami"), context.args().first().map(Vec::as_slice)) {
        (true, _) | (false, Some(b"-un" | b"-nu")) => format!("{user}\n"),
        (false, Some(b"-u" | b"-g")) => format!("{uid}\n"),
        _ => format!("uid={uid}({user}) gid={uid}({user})\n"),
    };
    context.out(text).await?;
    Ok(0)
}

pub(super) async fn seq(context: &ProgramContext) -> Exit {
    let numbers: Option<Vec<i64>> = context.args().iter().map(|arg| number(arg)).collect();
    let (first, last) = match numbers.as_deref() {
        Some([last]) => (1, *last),
        Some([first, last]) => (*first, *last),
        _ => return context.complain("usage: seq [first] last", 2).await,
    };
    let mut chunk = String::new();
    for number in first..=last {
        chunk.push_str(&number.to_string());
        chunk.push('\n');
        if chunk.len() > 8192 {
            context.out(&chunk).await?;
            chunk.clear();
        }
    }
    context.out(&chunk).await?;
    Ok(0)
}

pub(super) fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

pub(super) async fn sleep(context: &ProgramContext) -> Exit {
    let asked = context.args().first().and_then(|arg| std::str::from_utf8(arg).ok());
    let seconds = match asked {
        Some("infinity") => Some(f64::MAX),
        Some(text) => text.trim_end_matches('s').parse::<f64>().ok().filter(|s| *s >= 0.0),
        None => None,
    };
    let Some(seconds) = seconds else { return context.complain("invalid time interval", 1).await };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => tokio::time::sleep(duration).await,
        // Longer than a duration can be: as good as for ever. The sandbox's end ends it.
        Err(_) => std::future::pending().await,
    }
    Ok(0)
}

/// `kill [-SIGNAL] pid…`. Every signal but 0 ends an emulated process.
pub(in crate::memory) async fn kill(context: &ProgramContext) -> Exit {
    let mut args = context.args().to_vec();
    let mut signal = 15;
    if args.first().is_some_and(|arg| arg == b"-s") && args.len() > 1 {
        args.remove(0);
        args[0].insert(0, b'-');
    }
    if args.first().is_some_and(|arg| arg.starts_with(b"-")) {
        let name = args.remove(0).split_off(1);
        let Some(number) = signal_number(&name) else {
            return context.complain("unknown signal", 1).await;
        };
        signal = number;
    }
    let mut code = 0;
    for arg in &args {
        let pid = number(arg).and_then(|pid| u32::try_from(pid).ok());
        let table = &context.machine.processes;
        let there =
            pid.is_some_and(|pid| if signal == 0 { table.is_alive(pid) } else { table.kill(pid, signal) });
        if !there {
            code = context.complain([b"(", arg.as_slice(), b") - No such process"].concat(), 1).await?;
        }
    }
    if !context.machine.processes.is_alive(context.pid) {
        // It ended itself; nothing may happen after that.
        std::future::pending::<()>().await;
    }
    Ok(code)
}

fn signal_number(name: &[u8]) -> Option<i32> {
    let name = name.strip_prefix(b"SIG").unwrap_or(name);
    Some(match name {
        b"HUP" => 1,
        b"INT" => 2,
        b"QUIT" => 3,
        b"ABRT" => 6,
        b"KILL" => 9,
        b"USR1" => 10,
        b"SEGV" => 11,
        b"USR2" => 12,
        b"PIPE" => 13,
        b"TERM" => 15,
        _ => i32::try_from(number(name)?).ok().filter(|n| (0..=64).contains(n))?,
    })
}

/// `env` and `env [-i] [NAME=value]… program [arguments]`.
pub(super) async fn env(mut context: ProgramContext) -> ExitStatus {
    let mut args = context.args().to_vec();
    if args.first().is_some_and(|arg| arg == b"-i") {
        context.env.clear();
        args.remove(0);
    }
    while let Some(at) = args.first().and_then(|arg| arg.iter().position(|b| *b == b'=')) {
        let variable = args.remove(0);
        context.env.insert(variable[..at].to_vec(), variable[at + 1..].to_vec());
    }
    if !args.is_empty() {
        context.argv = args;
        return exec(context).await;
    }
    let mut text = Vec::new();
    for (name, value) in &context.env {
        text.extend([name.as_slice(), b"=", value, b"\n"].concat());
    }
    match context.out(text).await {
        Ok(()) => ExitStatus::Code(0),
        Err(_) => ExitStatus::Signal(13),
    }
}

/// `nohup` and `setsid`: run the rest of their arguments.
pub(super) async fn prefix(mut context: ProgramContext) -> ExitStatus {
    context.argv.remove(0);
    exec(context).await
}

/// Becomes the program in `context.argv`.
async fn exec(context: ProgramContext) -> ExitStatus {
    let launch = Launch {
        argv: context.argv.clone(),
        env: context.env.clone(),
        cwd: context.cwd.clone(),
        user: context.user,
        streams: context.streams.clone(),
        tree: Some(context.tree),
        tag: None,
        asked_cwd: None,
    };
    match super::Executable::find(&context.machine, &launch) {
        Ok(program) => Box::pin(program.run(context)).await,
        Err(why) => match context.complain(why.words(), why.code()).await {
            Ok(code) => ExitStatus::Code(code),
            Err(_) => ExitStatus::Signal(13),
        },
    }
}
