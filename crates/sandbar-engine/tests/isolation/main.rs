//! What a sandbox can see and do, from inside, in every mode this machine can give.

mod harness;
mod modes;
mod sight;
