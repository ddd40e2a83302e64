use sandbar::PortPublication;

use crate::args::PortArgs;

/// `port`.
#[derive(Debug)]
pub(crate) enum PortSettings {
    /// Show what is published.
    List { id: String },
    /// Publish.
    Publish { id: String, port: PortPublication },
    /// Take back.
    Remove { id: String, port: u16 },
}

impl PortSettings {
    pub(crate) fn resolve(args: PortArgs) -> Self {
        let PortArgs { id, port, listen, remove } = args;
        match port {
            None => Self::List { id },
            Some(port) if remove => Self::Remove { id, port: port.0 },
            Some(port) => Self::Publish { id, port: listen.unwrap_or_default().publication(port) },
        }
    }
}
