use super::{Exit, ProgramContext};
use crate::memory::disk::{Body, DiskError};

/// Flags (arguments that start with `-`) and the rest.
fn split(context: &ProgramContext) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (flags, rest): (Vec<_>, Vec<_>) =
        context.args().iter().cloned().partition(|arg| arg.len() > 1 && arg.starts_with(b"-"));
    (flags.concat(), rest.into_iter().filter(|arg| arg != b"--").collect())
}

async fn refuse(context: &ProgramContext, path: &[u8], why: DiskError) -> Exit {
    context.complain([path, b": ", why.words().as_bytes()].concat(), 1).await
}

pub(super) async fn mkdir(context: &ProgramContext) -> Exit {
    let (flags, paths) = split(context);
    let mut code = 0;
    for path in &paths {
        let (root, absolute) = (context.machine.root, context.path(path));
        let made = {
            let mut disk = context.machine.disk.lock();
            let parent = absolute.iter().rposition(|b| *b == b'/').map_or(&b"/"[..], |at| &absolute[..at]);
            match disk.find(root, parent) {
                Err(why) if !flags.contains(&b'p') => Err(why),
                _ => match disk.make_dirs(root, &absolute, context.user) {
                    Ok(false) if !flags.contains(&b'p') => Err(DiskError::Exists),
                    other => other.map(|_| ()),
                },
            }
        };
        if let Err(why) = made {
            code = refuse(context, path, why).await?;
        }
    }
    Ok(code)
}

/// `rm [-rf]` and `rmdir`.
pub(super) async fn rm(context: &ProgramContext) -> Exit {
    let (flags, paths) = split(context);
    let rmdir = context.argv[0].ends_with(b"rmdir");
    let mut code = 0;
    for path in &paths {
        let absolute = context.path(path);
        let removed = {
            let mut disk = context.machine.disk.lock();
            let node = disk.find_link(context.machine.root, &absolute).map(|place| place.node);
            match node {
                Err(why) => Err(why),
                Ok(Some(node)) => match (&disk.node(node).body, rmdir) {
                    (Body::Dir(entries), true) if !entries.is_empty() => Err(DiskError::NotEmpty),
                    (Body::Dir(_), false) if !flags.contains(&b'r') => Err(DiskError::IsADir),
                    (Body::Dir(_), true) | (_, false) => disk.remove(context.machine.root, &absolute),
                    (_, true) => Err(DiskError::NotADir),
                },
                Ok(None) => Err(DiskError::Missing),
            }
        };
        match removed {
            Err(DiskError::Missing) if flags.contains(&b'f') => {}
            Err(why) => code = refuse(context, path, why).await?,
            Ok(()) => {}
        }
    }
    Ok(code)
}

pub(super) async fn touch(context: &ProgramContext) -> Exit {
    let (_, paths) = split(context);
    let mut code = 0;
    for path in &paths {
        let absolute = context.path(path);
        let opened =
            context.machine.disk.lock().open_write(context.machine.root, &absolute, context.user, false);
        match opened {
            Ok(_) | Err(DiskError::IsADir) => {}
            Err(why) => code = refuse(context, path, why).await?,
        }
    }
    Ok(code)
}

pub(super) async fn chmod(context: &ProgramContext) -> Exit {
    let args = context.args();
    let [mode, paths @ ..] = args else { return context.complain("usage: chmod mode file…", 1).await };
    let octal = std::str::from_utf8(mode).ok().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    let mut code = 0;
    for path in paths {
        let absolute = context.path(path);
        let changed = {
            let mut disk = context.machine.disk.lock();
            let now = disk.find(context.machine.root, &absolute).map(|node| disk.node(node).mode);
            now.and_then(|now| {
                let mode = match (octal, mode.as_slice()) {
                    (Some(mode), _) => mode & 0o7777,
                    (None, b"+x" | b"a+x") => now | 0o111,
                    (None, _) => now & !0o111,
                };
                disk.chmod(context.machine.root, &absolute, mode)
            })
        };
        if let Err(why) = changed {
            code = refuse(context, path, why).await?;
        }
    }
    Ok(code)
}

/// `ln -s target path`; other links are not emulated.
pub(super) async fn ln(context: &ProgramContext) -> Exit {
    let (flags, paths) = split(context);
    let ([target, path], true) = (paths.as_slice(), flags.contains(&b's')) else {
        return context.complain("usage: ln -s target path", 1).await;
    };
    let absolute = context.path(path);
    let made = context.machine.disk.lock().make_link(context.machine.root, &absolute, target, context.user);
    match made {
        Ok(()) => Ok(0),
        Err(why) => refuse(context, path, why).await,
    }
}

pub(super) async fn readlink(context: &ProgramContext) -> Exit {
    let Some(path) = context.args().last() else { return Ok(1) };
    let absolute = context.path(path);
    let target = {
        let disk = context.machine.disk.lock();
        let place = disk.find_link(context.machine.root, &absolute);
        match place.ok().and_then(|place| place.node).map(|node| disk.node(node).body.clone()) {
            Some(Body::Link(target)) => target,
            _ => return Ok(1),
        }
    };
    context.out([target.as_slice(), b"\n"].concat()).await?;
    Ok(0)
}

/// `cp file path`, where `path` may be a folder.
pub(super) async fn cp(context: &ProgramContext) -> Exit {
    let (_, paths) = split(context);
    let [from, to] = paths.as_slice() else { return context.complain("usage: cp file path", 1).await };
    let copied = {
        let mut disk = context.machine.disk.lock();
        let root = context.machine.root;
        disk.find(root, &context.path(from)).and_then(|node| {
            let Body::File(bytes) = disk.node(node).body.clone() else { return Err(DiskError::IsADir) };
            let mode = disk.node(node).mode;
            let target = into_folder(context, &disk, from, to);
            disk.replace(root, &target, &bytes, context.user)?;
            disk.chmod(root, &target, mode)
        })
    };
    match copied {
        Ok(()) => Ok(0),
        Err(why) => refuse(context, from, why).await,
    }
}

pub(super) async fn mv(context: &ProgramContext) -> Exit {
    let (_, paths) = split(context);
    let [from, to] = paths.as_slice() else { return context.complain("usage: mv path path", 1).await };
    let moved = {
        let mut disk = context.machine.disk.lock();
        let target = into_folder(context, &disk, from, to);
        disk.rename(context.machine.root, &context.path(from), &target)
    };
    match moved {
        Ok(()) => Ok(0),
        Err(why) => refuse(context, from, why).await,
    }
}

/// `to`, or the place of `from`'s name in it where it is a folder.
fn into_folder(
    context: &ProgramContext,
    disk: &crate::memory::disk::Disk,
    from: &[u8],
    to: &[u8],
) -> Vec<u8> {
    let target = context.path(to);
    match disk.find(context.machine.root, &target) {
        Ok(node) if disk.node(node).is_dir() => {
            let name = from.rsplit(|b| *b == b'/').find(|part| !part.is_empty()).unwrap_or(from);
            [target.as_slice(), name].join(&b'/')
        }
        _ => target,
    }
}

/// `ls [-aA] [path]`: names, one a line.
pub(super) async fn ls(context: &ProgramContext) -> Exit {
    let (flags, paths) = split(context);
    let path = paths.first().cloned().unwrap_or_else(|| b".".to_vec());
    let listed = {
        let disk = context.machine.disk.lock();
        disk.find(context.machine.root, &context.path(&path)).map(|node| match &disk.node(node).body {
            Body::Dir(entries) => entries.keys().cloned().collect(),
            _ => vec![path.clone()],
        })
    };
    match listed {
        Ok(names) => {
            let hidden = flags.iter().any(|flag| matches!(flag, b'a' | b'A'));
            for name in names.iter().filter(|name| hidden || !name.starts_with(b".")) {
                context.out([name.as_slice(), b"\n"].concat()).await?;
            }
            Ok(0)
        }
        Err(why) => refuse(context, &path, why).await.map(|_| 2),
    }
}
