//! Starting processes inside a sandbox, for the guest agent.
