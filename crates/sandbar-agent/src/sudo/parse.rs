/// What a command line of `sudo` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invocation {
    pub(super) mode: Mode,
    pub(super) user: String,
    pub(super) preserve_env: bool,
    /// `NAME=value` before the command.
    pub(super) env: Vec<(String, String)>,
    pub(super) command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Run,
    Shell,
    Login,
    List,
    Validate,
    /// Forgets cached credentials, of which there are none.
    Nothing,
    Help,
    Version,
}

pub(super) const USAGE: &str = "usage: sudo [-nEHS] [-u user] [-i | -s] [NAME=value …] [--] [command [argument …]]\n\
                                \x20      sudo -l | -v | -k | -V";

/// Reads the arguments after the program's name.
pub(super) fn parse(args: Vec<String>) -> Result<Invocation, String> {
    let mut invocation = Invocation {
        mode: Mode::Run,
        user: "root".to_owned(),
        preserve_env: false,
        env: Vec::new(),
        command: Vec::new(),
    };
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next_if(|arg| arg.starts_with('-') && arg.len() > 1) {
        if arg == "--" {
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            long_option(long, &mut args, &mut invocation)?;
        } else {
            short_options(&arg[1..], &mut args, &mut invocation)?;
        }
    }
    while let Some(arg) = args.next_if(|arg| is_assignment(arg)) {
        if let Some((name, value)) = arg.split_once('=') {
            invocation.env.push((name.to_owned(), value.to_owned()));
        }
    }
    invocation.command = args.collect();
    if invocation.mode == Mode::Run && invocation.command.is_empty() {
        return Err("no command was given".to_owned());
    }
    Ok(invocation)
}

fn is_assignment(arg: &str) -> bool {
    let name = arg.split_once('=').map(|(name, _)| name).unwrap_or_default();
    name.chars().next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn long_option(
    option: &str,
    args: &mut impl Iterator<Item = String>,
    invocation: &mut Invocation,
) -> Result<(), String> {
    let (name, value) =
        option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value.to_owned())));
    let letter = match name {
        "user" => {
            let user = value.or_else(|| args.next()).ok_or("option `--user` needs a value")?;
            invocation.user = user;
            return Ok(());
        }
        "preserve-env" => 'E',
        "set-home" => 'H',
        "non-interactive" => 'n',
        "stdin" => 'S',
        "login" => 'i',
        "shell" => 's',
        "list" => 'l',
        "validate" => 'v',
        "reset-timestamp" | "remove-timestamp" => 'k',
        "help" => 'h',
        "version" => 'V',
        _ => return Err(format!("option `--{name}` is not supported")),
    };
    flag(letter, invocation)
}

/// A cluster as `-nEu root` or `-uroot`.
fn short_options(
    cluster: &str,
    args: &mut impl Iterator<Item = String>,
    invocation: &mut Invocation,
) -> Result<(), String> {
    let mut letters = cluster.chars();
    while let Some(letter) = letters.next() {
        if letter == 'u' || letter == 'p' {
            let rest = letters.as_str();
            let value = if rest.is_empty() { args.next() } else { Some(rest.to_owned()) };
            let value = value.ok_or_else(|| format!("option `-{letter}` needs a value"))?;
            // A prompt is never shown: there is no password.
            if letter == 'u' {
                invocation.user = value;
            }
            return Ok(());
        }
        flag(letter, invocation)?;
    }
    Ok(())
}

fn flag(letter: char, invocation: &mut Invocation) -> Result<(), String> {
    match letter {
        // Always so: there is no password and the home is the target's.
        'n' | 'H' | 'S' | 'A' | 'P' => {}
        'E' => invocation.preserve_env = true,
        'i' => invocation.mode = Mode::Login,
        's' => invocation.mode = Mode::Shell,
        'l' => invocation.mode = Mode::List,
        'v' => invocation.mode = Mode::Validate,
        'k' | 'K' => {
            if invocation.mode == Mode::Run {
                invocation.mode = Mode::Nothing;
            }
        }
        'h' => invocation.mode = Mode::Help,
        'V' => invocation.mode = Mode::Version,
        _ => return Err(format!("option `-{letter}` is not supported")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(args: &[&str]) -> Result<Invocation, String> {
        parse(args.iter().map(|arg| (*arg).to_owned()).collect())
    }

    #[test]
    fn usual_invocations() {
        let plain = of(&["apt-get", "-y", "install", "x"]).unwrap();
        assert_eq!((plain.user.as_str(), plain.command.len()), ("root", 4));
        let options = of(&["-nE", "-u", "user", "A=1", "B=x=y", "env", "C=2"]).unwrap();
        assert_eq!((options.user.as_str(), options.preserve_env), ("user", true));
        assert_eq!(options.env, [("A".into(), "1".into()), ("B".into(), "x=y".into())]);
        assert_eq!(options.command, ["env", "C=2"]);
        assert_eq!(of(&["-uuser", "id"]).unwrap().user, "user");
        assert_eq!(of(&["--user=user", "--", "-x"]).unwrap().command, ["-x"]);
        assert_eq!(of(&["-i"]).unwrap().mode, Mode::Login);
        assert_eq!(of(&["-s", "ls", "-l"]).unwrap().command, ["ls", "-l"]);
        assert_eq!((of(&["-l"]).unwrap().mode, of(&["-k"]).unwrap().mode), (Mode::List, Mode::Nothing));
    }

    #[test]
    fn bad_invocations() {
        for (args, word) in
            [(&["-u"][..], "value"), (&["-Z", "x"], "-Z"), (&["--what"], "--what"), (&[], "command")]
        {
            assert!(of(args).unwrap_err().contains(word), "{args:?}");
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_safe(args in prop::collection::vec("[-a-zA-Z=é]{0,6}", 0..6)) {
            let _ = parse(args);
        }
    }
}
