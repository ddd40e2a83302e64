use super::basic::number;
use super::{Exit, ProgramContext};
use crate::memory::process::Input;

const CHUNK: usize = 65_536;

/// The inputs that `paths` name; standard input where there are none. A file that can't be read is complained about.
async fn inputs(
    context: &ProgramContext,
    paths: &[Vec<u8>],
) -> Result<(Vec<Input>, i32), crate::memory::process::Broken> {
    if paths.is_empty() {
        return Ok((vec![context.streams.stdin.clone()], 0));
    }
    let mut inputs = Vec::new();
    let mut code = 0;
    for path in paths {
        if path == b"-" {
            inputs.push(context.streams.stdin.clone());
            continue;
        }
        match context.open(path) {
            Ok(input) => inputs.push(input),
            Err(words) => {
                code = context.complain([path.as_slice(), b": ", words.as_bytes()].concat(), 1).await?;
            }
        }
    }
    Ok((inputs, code))
}

pub(super) async fn cat(context: &ProgramContext) -> Exit {
    let (inputs, code) = inputs(context, context.args()).await?;
    for input in inputs {
        loop {
            let chunk = input.read(CHUNK).await;
            if chunk.is_empty() {
                break;
            }
            context.out(chunk).await?;
        }
    }
    Ok(code)
}

/// The count of `-c` or `-n` (10 lines without), and the paths.
fn count(context: &ProgramContext) -> Option<(u8, usize, &[Vec<u8>])> {
    let args = context.args();
    match args.first().map(Vec::as_slice) {
        Some(flag @ (b"-c" | b"-n")) => {
            Some((flag[1], usize::try_from(number(args.get(1)?)?).ok()?, &args[2..]))
        }
        Some([b'-', flag @ (b'c' | b'n'), digits @ ..]) => {
            Some((*flag, usize::try_from(number(digits)?).ok()?, &args[1..]))
        }
        _ => Some((b'n', 10, args)),
    }
}

pub(super) async fn head(context: &ProgramContext) -> Exit {
    let Some((unit, mut left, paths)) = count(context) else {
        return context.complain("usage: head [-c bytes | -n lines] [file]", 2).await;
    };
    let (inputs, code) = inputs(context, paths).await?;
    for input in inputs {
        while left > 0 {
            let chunk = input.read(if unit == b'c' { left } else { CHUNK }).await;
            if chunk.is_empty() {
                break;
            }
            if unit == b'c' {
                left -= chunk.len();
                context.out(chunk).await?;
                continue;
            }
            for line in chunk.split_inclusive(|b| *b == b'\n').take(left) {
                left -= usize::from(line.ends_with(b"\n"));
                context.out(line).await?;
            }
        }
    }
    Ok(code)
}

async fn read_all(inputs: Vec<Input>) -> Vec<u8> {
    let mut all = Vec::new();
    for input in inputs {
        loop {
            let chunk = input.read(CHUNK).await;
            if chunk.is_empty() {
                break;
            }
            all.extend_from_slice(&chunk);
        }
    }
    all
}

pub(super) async fn tail(context: &ProgramContext) -> Exit {
    let Some((unit, most, paths)) = count(context) else {
        return context.complain("usage: tail [-c bytes | -n lines] [file]", 2).await;
    };
    let (inputs, code) = inputs(context, paths).await?;
    let all = read_all(inputs).await;
    if unit == b'c' {
        context.out(&all[all.len().saturating_sub(most)..]).await?;
    } else {
        let lines: Vec<&[u8]> = all.split_inclusive(|b| *b == b'\n').collect();
        context.out(lines[lines.len().saturating_sub(most)..].concat()).await?;
    }
    Ok(code)
}

/// `wc -c` and `wc -l`, of standard input or one file.
pub(super) async fn wc(context: &ProgramContext) -> Exit {
    let (flag, paths) = match context.args().split_first() {
        Some((flag, paths)) if flag == b"-c" || flag == b"-l" => (flag[1], paths),
        _ => return context.complain("usage: wc -c|-l [file]", 2).await,
    };
    let (inputs, code) = inputs(context, paths).await?;
    let mut total = 0;
    for input in inputs {
        loop {
            let chunk = input.read(CHUNK).await;
            if chunk.is_empty() {
                break;
            }
            total += if flag == b'c' { chunk.len() } else { chunk.split(|b| *b == b'\n').count() - 1 };
        }
    }
    let name = paths.first().map(|path| [b" ", path.as_slice()].concat()).unwrap_or_default();
    context.out([total.to_string().as_bytes(), &name, b"\n"].concat()).await?;
    Ok(code)
}

/// `tr FROM TO` and `tr -d SET`, each set a list of bytes with the escapes `\0` and `\n`.
pub(super) async fn tr(context: &ProgramContext) -> Exit {
    let set = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).replace("\\0", "\0").replace("\\n", "\n");
        text.into_bytes()
    };
    let (delete, from, to) = match context.args() {
        [flag, from] if flag == b"-d" => (true, set(from), Vec::new()),
        [from, to] => (false, set(from), set(to)),
        _ => return context.complain("usage: tr [-d] set [set]", 2).await,
    };
    loop {
        let chunk = context.streams.stdin.read(CHUNK).await;
        if chunk.is_empty() {
            return Ok(0);
        }
        let mapped: Vec<u8> = chunk
            .iter()
            .filter_map(|byte| match from.iter().position(|b| b == byte) {
                None => Some(*byte),
                Some(_) if delete => None,
                Some(at) => to.get(at).or(to.last()).copied().or(Some(*byte)),
            })
            .collect();
        context.out(mapped).await?;
    }
}

pub(super) async fn tee(context: &ProgramContext) -> Exit {
    let mut files = Vec::new();
    for path in context.args() {
        let absolute = context.path(path);
        let opened =
            context.machine.disk.lock().open_write(context.machine.root, &absolute, context.user, true);
        match opened {
            Ok(node) => files.push(node),
            Err(why) => {
                context.complain([path.as_slice(), b": ", why.words().as_bytes()].concat(), 1).await?;
            }
        }
    }
    loop {
        let chunk = context.streams.stdin.read(CHUNK).await;
        if chunk.is_empty() {
            return Ok(0);
        }
        for file in &files {
            context.machine.disk.lock().append(*file, &chunk);
        }
        context.out(chunk).await?;
    }
}

pub(super) async fn yes(context: &ProgramContext) -> Exit {
    let mut line = context.args().join(&b' ');
    if line.is_empty() {
        line.push(b'y');
    }
    line.push(b'\n');
    let lines = line.repeat(CHUNK / line.len() + 1);
    loop {
        context.out(&lines).await?;
    }
}
