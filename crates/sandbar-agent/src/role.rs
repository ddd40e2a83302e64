use std::io::{self, Read};
use std::os::fd::OwnedFd;

use sandbar_engine::handover;
use sandbar_engine::process;

use crate::config::{CONFIG_MAX_BYTES, CONFIG_VERSION, SUDO_SOCKET};
use crate::log::log;
use crate::server::serve_with;
use crate::{AgentConfig, Listeners, sudo};

/// The agent's `main`: takes configuration and listeners from the inherited descriptors and serves until the sandbox
/// ends. A failure is one line on standard error (the log pipe) and exit code 1.
pub fn main_from_handover() -> ! {
    // What process lists show; the file's own name says less.
    let _ = rustix::thread::set_name(c"sandbar-agent");
    process::share_one_heap();
    process::become_quiet_parent();
    let code = match start() {
        Ok(()) => 0,
        Err(error) => {
            log(format_args!("{error}"));
            1
        }
    };
    std::process::exit(code)
}

fn start() -> io::Result<()> {
    // First, as anything that is opened could get one of their numbers.
    let network = process::take_network()?;
    for output in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        // The log must not hold the agent up; a line that doesn't fit is lost.
        let _ = rustix::io::ioctl_fionbio(output, true);
    }
    let oom_score = process::OomScore::open();
    process::hide_from_ptrace()?;
    let config = read_config(process::take_descriptor(handover::CONFIG_FD)?)?;
    let agent = process::take_descriptor(handover::AGENT_LISTENER_FD)?;
    let control = process::take_descriptor(handover::CTL_LISTENER_FD)?;
    let oom_score = match oom_score {
        Ok(score) => Some(score),
        Err(error) => {
            log(format_args!("commands are as likely victims of a lack of memory as the agent: {error}"));
            None
        }
    };
    serve_with(config, Listeners { agent, control: Some(control), network }, oom_score)?;
    Ok(())
}

fn read_config(descriptor: OwnedFd) -> io::Result<AgentConfig> {
    let mut text = Vec::new();
    let limit = u64::try_from(CONFIG_MAX_BYTES).unwrap_or(u64::MAX);
    rustix::fs::seek(&descriptor, rustix::fs::SeekFrom::Start(0)).or_else(|error| match error {
        // A pipe is as good as a file.
        rustix::io::Errno::SPIPE => Ok(0),
        error => Err(error),
    })?;
    std::fs::File::from(descriptor).take(limit).read_to_end(&mut text)?;
    if text.is_empty() {
        let text = "no configuration came: nobody wants this sandbox any more";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    let config: AgentConfig = serde_json::from_slice(&text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("read the configuration: {error}"))
    })?;
    if config.version != CONFIG_VERSION {
        let text = format!("configuration has version {}; this agent reads {CONFIG_VERSION}", config.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(config)
}

/// `main` of `sudo` in a sandbox: `args` without the program's name. Returns the exit code.
pub fn sudo_main(args: impl IntoIterator<Item = std::ffi::OsString>) -> i32 {
    sudo::client::run(std::path::Path::new(SUDO_SOCKET), args.into_iter().collect())
}
