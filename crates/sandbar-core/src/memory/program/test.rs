use super::basic::number;
use super::{Exit, ProgramContext};
use crate::memory::disk::Body;

/// `test` and `[`.
pub(super) async fn main(context: &ProgramContext) -> Exit {
    let mut args = context.args();
    if context.argv[0].ends_with(b"[") {
        match args.split_last() {
            Some((last, rest)) if last == b"]" => args = rest,
            _ => return context.complain("missing `]`", 2).await,
        }
    }
    match evaluate(context, args) {
        Some(true) => Ok(0),
        Some(false) => Ok(1),
        None => context.complain("unknown condition", 2).await,
    }
}

/// Whether a condition holds; `None` if it is not one that is emulated.
pub(in crate::memory) fn evaluate(context: &ProgramContext, args: &[Vec<u8>]) -> Option<bool> {
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    Some(match args.as_slice() {
        [] => false,
        [b"!", rest @ ..] => {
            let rest: Vec<Vec<u8>> = rest.iter().map(|arg| arg.to_vec()).collect();
            !evaluate(context, &rest)?
        }
        [text] | [b"-n", text] => !text.is_empty(),
        [b"-z", text] => text.is_empty(),
        [flag @ (b"-e" | b"-f" | b"-d" | b"-s" | b"-x" | b"-L"), path] => on_disk(context, flag[1], path),
        [a, b"=", b] => a == b,
        [a, b"!=", b] => a != b,
        [a, operator, b] => {
            let (a, b) = (number(a)?, number(b)?);
            match *operator {
                b"-eq" => a == b,
                b"-ne" => a != b,
                b"-lt" => a < b,
                b"-le" => a <= b,
                b"-gt" => a > b,
                b"-ge" => a >= b,
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn on_disk(context: &ProgramContext, flag: u8, path: &[u8]) -> bool {
    let disk = context.machine.disk.lock();
    let (root, path) = (context.machine.root, context.path(path));
    if flag == b'L' {
        let node = disk.find_link(root, &path).ok().and_then(|place| place.node);
        return node.is_some_and(|node| matches!(disk.node(node).body, Body::Link(_)));
    }
    let Ok(node) = disk.find(root, &path) else { return false };
    let node = disk.node(node);
    match flag {
        b'f' => matches!(node.body, Body::File(_)),
        b'd' => node.is_dir(),
        b's' => node.size() > 0,
        b'x' => node.mode & 0o111 != 0,
        _ => true,
    }
}
