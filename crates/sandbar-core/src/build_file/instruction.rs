use super::lines::logical;
use super::words::words;
use crate::{Command, EnvVars, Error, GuestPath, MAX_BUILD_STEPS, Result, UserName};

const PARSE: &str = "parse build file";

/// A build file, parsed: instructions in their order. It has no `FROM`: over what it builds is told to the build.
///
/// ```
/// # use sandbar_core::*;
/// # fn main() -> Result<()> {
/// let file = BuildFile::parse("ENV MODE=fast\nRUN make \\\n  all\nCOPY src/ /home/user/src/\nSTART [\"./serve\"]\n")?;
/// assert_eq!(file.lines().len(), 4);
/// assert_eq!(file.lines()[2].line, 4);
/// let error = BuildFile::parse("RUN true\nJUMP high\n").unwrap_err();
/// assert!(error.message().contains("line 2"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BuildFile {
    lines: Vec<BuildLine>,
}

/// An instruction and where it stands.
#[derive(Clone, Debug)]
pub struct BuildLine {
    /// The line that it begins at, from 1.
    pub line: usize,
    /// What it says.
    pub instruction: BuildInstruction,
}

/// What a line of a build file says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BuildInstruction {
    /// `RUN COMMAND`, by the shell, or `RUN ["PROGRAM", "ARGUMENT"]`.
    Run(Command),
    /// `COPY SOURCE... DESTINATION`.
    Copy {
        /// Files and folders, from the context.
        sources: Vec<String>,
        /// Where to.
        to: GuestPath,
        /// Whether that is a folder to copy into: it was written with `/` at its end, or there are several sources.
        into: bool,
    },
    /// `ENV NAME=VALUE...`.
    Env(EnvVars),
    /// `WORKDIR FOLDER`.
    Workdir(GuestPath),
    /// `USER NAME`.
    User(UserName),
    /// `START COMMAND`: the main command of sandboxes made from the template.
    Start(Command),
    /// `READY COMMAND`: what succeeds once the main command is ready.
    Ready(Command),
}

impl BuildFile {
    /// Parses a build file. The error names the line, what was wrong and what was expected.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser::default();
        let mut lines: Vec<BuildLine> = Vec::new();
        for logical in logical(text)? {
            let line = logical.line;
            if lines.len() == MAX_BUILD_STEPS {
                return Err(complain(line, format!("more than {MAX_BUILD_STEPS} instructions")));
            }
            let instruction = parser.instruction(line, &logical.text)?;
            let twice = lines.iter().find(|before| {
                matches!(
                    (&before.instruction, &instruction),
                    (BuildInstruction::Start(_), BuildInstruction::Start(_))
                        | (BuildInstruction::Ready(_), BuildInstruction::Ready(_))
                )
            });
            if let Some(before) = twice {
                let why = format!("line {} says that already: expected one at most", before.line);
                return Err(complain(line, why));
            }
            lines.push(BuildLine { line, instruction });
        }
        if lines.is_empty() {
            return Err(Error::invalid(PARSE, "the build file has no instruction")
                .with_hint(format!("expected lines that begin with one of {EXPECTED}")));
        }
        Ok(Self { lines })
    }

    /// Its instructions, in order.
    pub fn lines(&self) -> &[BuildLine] {
        &self.lines
    }
}

const EXPECTED: &str = "`RUN`, `COPY`, `ENV`, `WORKDIR`, `USER`, `START`, `READY`";

/// An error at a line.
pub(super) fn complain(line: usize, why: impl std::fmt::Display) -> Error {
    Error::invalid(PARSE, format!("line {line}: {why}"))
}

/// What has to be known of the lines before.
#[derive(Default)]
struct Parser {
    workdir: Option<GuestPath>,
}

impl Parser {
    fn instruction(&mut self, line: usize, text: &str) -> Result<BuildInstruction> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let instruction = match name {
            "RUN" => BuildInstruction::Run(command(line, name, rest)?),
            "START" => BuildInstruction::Start(command(line, name, rest)?),
            "READY" => BuildInstruction::Ready(command(line, name, rest)?),
            "COPY" => self.copy(line, rest)?,
            "ENV" => BuildInstruction::Env(env(line, rest)?),
            "WORKDIR" => {
                let path = self.path(line, &single(line, name, rest)?)?;
                self.workdir = Some(path.clone());
                BuildInstruction::Workdir(path)
            }
            "USER" => {
                let user = UserName::new(single(line, name, rest)?);
                BuildInstruction::User(user.map_err(|error| complain(line, error.message()))?)
            }
            other => return Err(unknown(line, other)),
        };
        Ok(instruction)
    }

    fn copy(&self, line: usize, rest: &str) -> Result<BuildInstruction> {
        let mut sources = parted(line, rest)?;
        let expected = "expected `COPY SOURCE... DESTINATION`";
        if let Some(option) = sources.iter().find(|word| word.starts_with("--")) {
            return Err(complain(line, format!("`{}` is not known: {expected}", option.escape_debug())));
        }
        let Some(to) = sources.pop().filter(|_| !sources.is_empty()) else {
            return Err(complain(line, expected));
        };
        for source in &sources {
            check_source(line, source)?;
        }
        let into = to.ends_with('/') || matches!(&*to, "." | "..") || to.ends_with("/.") || sources.len() > 1;
        Ok(BuildInstruction::Copy { sources, to: self.path(line, &to)?, into })
    }

    /// A path inside, from the working folder.
    fn path(&self, line: usize, text: &str) -> Result<GuestPath> {
        let path = match &self.workdir {
            _ if text.starts_with('/') => GuestPath::new(text),
            Some(workdir) => workdir.join(text),
            None => {
                let why =
                    format!("`{}` is not absolute, and no `WORKDIR` stands before it", text.escape_debug());
                return Err(complain(line, why));
            }
        };
        path.map_err(|error| complain(line, error.message()))
    }
}

/// Sources are named from the context, and nothing but what is in it.
fn check_source(line: usize, source: &str) -> Result<()> {
    let why = if source.is_empty() {
        "a source is empty"
    } else if source.starts_with('/') {
        "is absolute: sources are named from the context"
    } else if source.split('/').any(|segment| segment == "..") {
        "climbs with `..`: sources lie in the context"
    } else if source.contains(['*', '?', '[']) {
        "has a pattern: name the files, or the folder that they are in"
    } else {
        return Ok(());
    };
    Err(complain(line, format!("source `{}` {why}", source.escape_debug())))
}

fn command(line: usize, name: &str, rest: &str) -> Result<Command> {
    if rest.is_empty() {
        return Err(complain(line, format!("expected a command after `{name}`")));
    }
    let command = if rest.starts_with('[') {
        let argv: Vec<String> = serde_json::from_str(rest).map_err(|cause| {
            complain(line, format!("not a JSON array of strings: {cause}")).with_hint(format!(
                "expected `{name} [\"PROGRAM\", \"ARGUMENT\"]`, or a line for the shell that begins otherwise"
            ))
        })?;
        Command::from_argv(argv).map_err(|error| complain(line, error.message()))?
    } else {
        Command::shell(rest)
    };
    Ok(command)
}

fn env(line: usize, rest: &str) -> Result<EnvVars> {
    let words = parted(line, rest)?;
    let expected = "expected `ENV NAME=VALUE...`";
    if words.is_empty() {
        return Err(complain(line, expected));
    }
    let mut env = EnvVars::new();
    for word in words {
        // The word may hold a value, and is not shown.
        let (name, value) =
            word.split_once('=').ok_or_else(|| complain(line, format!("a word without `=`: {expected}")))?;
        env.insert(name, value).map_err(|error| complain(line, error.message()))?;
    }
    Ok(env)
}

fn single(line: usize, name: &str, rest: &str) -> Result<String> {
    match <[String; 1]>::try_from(parted(line, rest)?) {
        Ok([word]) => Ok(word),
        Err(words) => Err(complain(line, format!("expected one word after `{name}`, got {}", words.len()))),
    }
}

fn parted(line: usize, rest: &str) -> Result<Vec<String>> {
    words(rest).map_err(|why| complain(line, why))
}

fn unknown(line: usize, name: &str) -> Error {
    let shown: String = name.chars().take(32).collect();
    let error =
        complain(line, format!("`{}` is not an instruction: expected {EXPECTED}", shown.escape_debug()));
    let hint = match name.to_ascii_uppercase().as_str() {
        "FROM" => "over what is built is told to the build, as `--base`".to_owned(),
        "CMD" | "ENTRYPOINT" => "`START` has the main command".to_owned(),
        "HEALTHCHECK" => "`READY` has the command that succeeds once the main command is ready".to_owned(),
        "ADD" => "`COPY` has files of the context, and `RUN` may fetch others".to_owned(),
        "EXPOSE" => "ports are published when a sandbox is made".to_owned(),
        upper if EXPECTED.contains(&format!("`{upper}`")) => format!("it is written `{upper}`"),
        _ => return error,
    };
    error.with_hint(hint)
}
