use super::ast::{Redirect, Word};
use super::run::{Flow, Ran, Shell, end_of};
use crate::ExitStatus;
use crate::memory::process::Broken;
use crate::memory::program::evaluate;

impl Shell {
    pub(super) async fn simple(
        &mut self,
        assignments: &[(Vec<u8>, Word)],
        words: &[Word],
        redirects: &[Redirect],
    ) -> Ran {
        let argv = self.expand_all(words).await?;
        let mut values = Vec::new();
        for (name, word) in assignments {
            values.push((name.clone(), self.expand_one(word).await?));
        }
        let saved = self.context.streams.clone();
        // `exec` alone makes its redirections last.
        let lasting = argv.len() == 1 && argv[0] == b"exec";
        if !self.redirect(redirects).await? {
            self.context.streams = saved;
            return Ok(Flow::On);
        }
        if argv.is_empty() {
            for (name, value) in values {
                self.set(&name, value);
            }
            if words.is_empty() && assignments.is_empty() {
                self.status = ExitStatus::Code(0);
            }
            self.context.streams = saved;
            return Ok(Flow::On);
        }
        let flow = if let Some(flow) = self.builtin(&argv).await? {
            flow
        } else {
            let mut env = self.context.env.clone();
            env.extend(values);
            if argv[0] == b"exec" && argv.len() > 1 {
                self.external(argv[1..].to_vec(), env).await?;
                Flow::Exit
            } else {
                self.external(argv, env).await?;
                Flow::On
            }
        };
        if !lasting {
            self.context.streams = saved;
        }
        Ok(flow)
    }

    /// Runs a command that only the shell itself can run; `None` if `argv` is another.
    async fn builtin(&mut self, command: &[Vec<u8>]) -> Result<Option<Flow>, Broken> {
        let args = &command[1..];
        let code = match command[0].as_slice() {
            b"exit" => {
                if let Some(code) = args.first() {
                    let code = std::str::from_utf8(code).ok().and_then(|code| code.parse::<i32>().ok());
                    self.status = ExitStatus::Code(code.map_or(2, |code| code & 0xff));
                }
                return Ok(Some(Flow::Exit));
            }
            b"exec" if args.is_empty() => 0,
            b":" => 0,
            b"cd" => self.cd(args.first()).await?,
            b"export" => {
                for arg in args {
                    let at = arg.iter().position(|b| *b == b'=');
                    let (name, value) = match at {
                        Some(at) => (arg[..at].to_vec(), Some(arg[at + 1..].to_vec())),
                        None => (arg.clone(), None),
                    };
                    let value = value.or_else(|| self.variables.remove(&name));
                    self.variables.remove(&name);
                    if let Some(value) = value {
                        self.context.env.insert(name, value);
                    }
                }
                0
            }
            b"unset" => {
                for name in args {
                    self.variables.remove(name);
                    self.context.env.remove(name);
                }
                0
            }
            b"shift" => {
                if self.args.len() > 1 {
                    self.args.remove(1);
                }
                0
            }
            b"read" => self.read(args).await,
            b"wait" => self.wait(args.first()).await,
            b"test" => evaluate(&self.context, args).map_or(2, |holds| i32::from(!holds)),
            b"[" => {
                let inner = args.split_last().filter(|(last, _)| *last == b"]").map(|(_, inner)| inner);
                inner.and_then(|inner| evaluate(&self.context, inner)).map_or(2, |holds| i32::from(!holds))
            }
            b"kill" => {
                let mut context = self.context.clone();
                context.argv = command.to_vec();
                crate::memory::program::kill(&context).await?
            }
            _ => return Ok(None),
        };
        self.status = ExitStatus::Code(code);
        Ok(Some(Flow::On))
    }

    async fn cd(&mut self, to: Option<&Vec<u8>>) -> Result<i32, Broken> {
        let home = self.context.env.get(b"HOME".as_slice()).cloned();
        let Some(to) = to.cloned().or(home) else { return self.context.complain("cd: no home", 2).await };
        let path = normal(&self.context.path(&to));
        let found = {
            let disk = self.context.machine.disk.lock();
            disk.find(self.context.machine.root, &path).is_ok_and(|node| disk.node(node).is_dir())
        };
        if !found {
            let message = [b"cd: can't cd to ", to.as_slice()].concat();
            return self.context.complain(message, 2).await;
        }
        self.context.cwd = path;
        Ok(0)
    }

    /// `read [-r] name`: one line of standard input.
    async fn read(&mut self, args: &[Vec<u8>]) -> i32 {
        let mut line = Vec::new();
        let mut code = 0;
        loop {
            let byte = self.context.streams.stdin.read(1).await;
            match byte.first() {
                None => {
                    code = 1;
                    break;
                }
                Some(b'\n') => break,
                Some(byte) => line.push(*byte),
            }
        }
        if let Some(name) = args.iter().find(|arg| *arg != b"-r") {
            self.set(name, line);
        }
        code
    }

    /// `wait [pid]`.
    async fn wait(&mut self, pid: Option<&Vec<u8>>) -> i32 {
        let children = std::mem::take(&mut self.children);
        let Some(wanted) = pid else {
            for (_, ended) in children {
                end_of(ended).await;
            }
            return 0;
        };
        let (mine, rest): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|(pid, _)| pid.to_string().as_bytes() == wanted.as_slice());
        self.children = rest;
        match mine.into_iter().next() {
            Some((_, ended)) => end_of(ended).await.to_code(),
            None => 127,
        }
    }
}

/// `path` without `.` and `..`.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    [b"/".as_slice(), &parts.join(&b'/')].concat()
}
