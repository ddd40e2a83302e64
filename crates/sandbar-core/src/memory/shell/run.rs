use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::ast::{Ending, Link, Node, Redirect, RedirectKind};
use super::parse::parse;
use crate::ExitStatus;
use crate::memory::process::{Broken, Ended, Input, Launch, Launched, Output, Pid, pipe};
use crate::memory::program::{Env, ProgramContext};

/// Whether the shell goes on after a command.
pub(super) enum Flow {
    On,
    /// `exit` or `exec`: the shell ends with its status.
    Exit,
}

pub(super) type Ran = Result<Flow, Broken>;

/// A shell that runs.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    pub(super) context: ProgramContext,
    /// Variables that are not exported; the exported ones are the context's environment.
    pub(super) variables: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `$0`, `$1` and so on.
    pub(super) args: Vec<Vec<u8>>,
    pub(super) status: ExitStatus,
    pub(super) background: Option<Pid>,
    pub(super) children: Vec<(Pid, Ended)>,
}

/// The program `sh`: `sh -c script [name [arguments]]`, `sh file [arguments]`, or `sh` for a script on standard input.
pub(in crate::memory) async fn main(context: ProgramContext) -> ExitStatus {
    let args = context.argv.clone();
    let (script, args) = match args.get(1).map(Vec::as_slice) {
        Some(b"-c" | b"-ec") => {
            let rest = args.get(3..).filter(|rest| !rest.is_empty()).unwrap_or(&args[..1]);
            (args.get(2).cloned().unwrap_or_default(), rest.to_vec())
        }
        Some(path) => match context.open(path) {
            Ok(input) => (read_all(&input).await, args[1..].to_vec()),
            Err(words) => {
                let complaint = context.complain([path, b": ", words.as_bytes()].concat(), 127).await;
                return complaint.map_or(ExitStatus::Signal(13), ExitStatus::Code);
            }
        },
        None => (read_all(&context.streams.stdin).await, args),
    };
    run(context, &script, args).await
}

/// Runs a script file.
pub(in crate::memory) async fn script(context: ProgramContext, text: &[u8], path: Vec<u8>) -> ExitStatus {
    let args = [vec![path], context.argv.get(1..).unwrap_or_default().to_vec()].concat();
    run(context, text, args).await
}

async fn read_all(input: &Input) -> Vec<u8> {
    let mut text = Vec::new();
    loop {
        let chunk = input.read(usize::MAX).await;
        if chunk.is_empty() {
            return text;
        }
        text.extend_from_slice(&chunk);
    }
}

async fn run(context: ProgramContext, script: &[u8], args: Vec<Vec<u8>>) -> ExitStatus {
    let node = match parse(script) {
        Ok(node) => node,
        Err(message) => {
            let complaint = context.complain(message, 2).await;
            return complaint.map_or(ExitStatus::Signal(13), ExitStatus::Code);
        }
    };
    let mut shell = Shell {
        context,
        variables: BTreeMap::new(),
        args,
        status: ExitStatus::Code(0),
        background: None,
        children: Vec::new(),
    };
    match shell.run(&node).await {
        Ok(_) => ExitStatus::Code(shell.status.to_code()),
        Err(Broken) => ExitStatus::Signal(13),
    }
}

impl Shell {
    pub(super) fn run<'a>(&'a mut self, node: &'a Node) -> BoxFuture<'a, Ran> {
        async move {
            match node {
                Node::Simple { assignments, words, redirects } => {
                    self.simple(assignments, words, redirects).await
                }
                Node::Pipeline { negated, stages } => self.pipeline(*negated, stages).await,
                Node::Chain(first, rest) => self.chain(first, rest).await,
                Node::List(items) => self.list(items).await,
                Node::Subshell(inner, redirects) => {
                    let mut twin = self.clone();
                    if twin.redirect(redirects).await? {
                        let launched = twin.start((**inner).clone());
                        self.status = end_of(launched.ended).await;
                    } else {
                        self.status = twin.status;
                    }
                    Ok(Flow::On)
                }
                Node::Group(inner, redirects) => self.redirected(redirects, inner).await,
                Node::If { condition, then, otherwise, redirects } => {
                    let saved = self.context.streams.clone();
                    if !self.redirect(redirects).await? {
                        return Ok(Flow::On);
                    }
                    let flow = self.branch(condition, then, otherwise.as_deref()).await;
                    self.context.streams = saved;
                    flow
                }
                Node::Loop { until, condition, body, redirects } => {
                    let saved = self.context.streams.clone();
                    if !self.redirect(redirects).await? {
                        return Ok(Flow::On);
                    }
                    let flow = self.repeat(*until, condition, body).await;
                    self.context.streams = saved;
                    flow
                }
                Node::For { name, words, body, redirects } => {
                    let saved = self.context.streams.clone();
                    if !self.redirect(redirects).await? {
                        return Ok(Flow::On);
                    }
                    for value in self.expand_all(words).await? {
                        self.set(name, value);
                        if let Flow::Exit = self.run(body).await? {
                            return Ok(Flow::Exit);
                        }
                    }
                    self.context.streams = saved;
                    Ok(Flow::On)
                }
            }
        }
        .boxed()
    }

    async fn redirected(&mut self, redirects: &[Redirect], inner: &Node) -> Ran {
        let saved = self.context.streams.clone();
        if !self.redirect(redirects).await? {
            return Ok(Flow::On);
        }
        let flow = self.run(inner).await;
        self.context.streams = saved;
        flow
    }

    async fn branch(&mut self, condition: &Node, then: &Node, otherwise: Option<&Node>) -> Ran {
        if let Flow::Exit = self.run(condition).await? {
            return Ok(Flow::Exit);
        }
        if self.status.is_success() {
            return self.run(then).await;
        }
        self.status = ExitStatus::Code(0);
        match otherwise {
            Some(otherwise) => self.run(otherwise).await,
            None => Ok(Flow::On),
        }
    }

    async fn repeat(&mut self, until: bool, condition: &Node, body: &Node) -> Ran {
        let mut last = ExitStatus::Code(0);
        loop {
            if let Flow::Exit = self.run(condition).await? {
                return Ok(Flow::Exit);
            }
            if self.status.is_success() == until {
                self.status = last;
                return Ok(Flow::On);
            }
            if let Flow::Exit = self.run(body).await? {
                return Ok(Flow::Exit);
            }
            last = self.status;
            // A loop of built-ins never waits by itself, and an abort needs a point to take hold.
            tokio::task::yield_now().await;
        }
    }

    async fn chain(&mut self, first: &Node, rest: &[(Link, Node)]) -> Ran {
        if let Flow::Exit = self.run(first).await? {
            return Ok(Flow::Exit);
        }
        for (link, node) in rest {
            if self.status.is_success() == (*link == Link::And)
                && let Flow::Exit = self.run(node).await?
            {
                return Ok(Flow::Exit);
            }
        }
        Ok(Flow::On)
    }

    async fn list(&mut self, items: &[(Node, Ending)]) -> Ran {
        for (node, ending) in items {
            if *ending == Ending::Foreground {
                if let Flow::Exit = self.run(node).await? {
                    return Ok(Flow::Exit);
                }
                continue;
            }
            let mut twin = self.clone();
            twin.context.streams.stdin = Input::Null;
            let launched = twin.start(node.clone());
            self.background = Some(launched.pid);
            self.children.push((launched.pid, launched.ended));
            self.status = ExitStatus::Code(0);
        }
        Ok(Flow::On)
    }

    async fn pipeline(&mut self, negated: bool, stages: &[Node]) -> Ran {
        let mut input = self.context.streams.stdin.clone();
        let mut ends = Vec::new();
        for (number, stage) in stages.iter().enumerate() {
            let mut twin = self.clone();
            twin.context.streams.stdin = input;
            input = Input::Null;
            if number + 1 < stages.len() {
                let (writer, reader) = pipe();
                twin.context.streams.stdout = Output::Pipe(writer);
                input = Input::Pipe(reader);
            }
            ends.push(twin.start(stage.clone()).ended);
        }
        for ended in ends {
            self.status = end_of(ended).await;
        }
        if negated {
            self.status = ExitStatus::Code(i32::from(self.status.is_success()));
        }
        Ok(Flow::On)
    }

    /// Runs `node` in a process of its own, with this shell's state.
    pub(super) fn start(self, node: Node) -> Launched {
        let machine = self.context.machine.clone();
        let launch = Launch {
            argv: self.context.argv.clone(),
            env: self.context.env.clone(),
            cwd: self.context.cwd.clone(),
            user: self.context.user,
            streams: self.context.streams.clone(),
            tree: Some(self.context.tree),
            tag: None,
            asked_cwd: None,
        };
        let Self { context, variables, args, status, background, .. } = self;
        drop(context);
        machine.launch_as(launch, move |context| async move {
            let mut shell = Shell { context, variables, args, status, background, children: Vec::new() };
            match shell.run(&node).await {
                Ok(_) => ExitStatus::Code(shell.status.to_code()),
                Err(Broken) => ExitStatus::Signal(13),
            }
        })
    }

    /// Applies redirections; `false` if one failed, which was said and is in the status.
    pub(super) async fn redirect(&mut self, redirects: &[Redirect]) -> Result<bool, Broken> {
        for redirect in redirects {
            let target = self.expand_one(&redirect.target).await?;
            if let Err(words) = self.apply(redirect, &target) {
                let message = [target.as_slice(), b": ", words.as_bytes()].concat();
                self.context.complain(message, 2).await?;
                self.status = ExitStatus::Code(2);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn apply(&mut self, redirect: &Redirect, target: &[u8]) -> Result<(), &'static str> {
        let context = &mut self.context;
        if redirect.kind == RedirectKind::Read {
            context.streams.stdin = context.open(target)?;
            return Ok(());
        }
        let output = if redirect.kind == RedirectKind::Copy {
            match target {
                b"1" => context.streams.stdout.clone(),
                b"2" => context.streams.stderr.clone(),
                b"-" => Output::Null,
                _ => return Err("Bad file descriptor"),
            }
        } else {
            let path = context.path(target);
            let truncate = redirect.kind == RedirectKind::Write;
            let disk = context.machine.disk.clone();
            let node = disk.lock().open_write(context.machine.root, &path, context.user, truncate);
            let node = node.map_err(crate::memory::disk::DiskError::words)?;
            Output::File(disk, node)
        };
        match redirect.stream {
            1 => context.streams.stdout = output,
            2 => context.streams.stderr = output,
            _ => return Err("Bad file descriptor"),
        }
        Ok(())
    }

    pub(super) fn set(&mut self, name: &[u8], value: Vec<u8>) {
        match self.context.env.get_mut(name) {
            Some(exported) => *exported = value,
            None => {
                self.variables.insert(name.to_vec(), value);
            }
        }
    }

    /// Starts a program with `env` and waits for its end.
    pub(super) async fn external(&mut self, argv: Vec<Vec<u8>>, env: Env) -> Result<(), Broken> {
        let name = argv[0].clone();
        let context = &self.context;
        let launch = Launch {
            argv,
            env,
            cwd: context.cwd.clone(),
            user: context.user,
            streams: context.streams.clone(),
            tree: Some(context.tree),
            tag: None,
            asked_cwd: None,
        };
        match context.machine.launch(launch) {
            Ok(launched) => self.status = end_of(launched.ended).await,
            Err(why) => {
                let message = [name.as_slice(), b": ", why.words().as_bytes()].concat();
                self.status = ExitStatus::Code(context.complain(message, why.code()).await?);
            }
        }
        Ok(())
    }
}

/// Waits for a process' end.
pub(super) async fn end_of(mut ended: Ended) -> ExitStatus {
    match ended.wait_for(Option::is_some).await {
        Ok(status) => status.unwrap_or(ExitStatus::Unknown),
        Err(_) => ExitStatus::Unknown,
    }
}
