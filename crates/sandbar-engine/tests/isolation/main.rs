//! What a sandbox can see and do, from inside, in every mode this machine can give.

mod cost;
mod harness;
mod limits;
mod modes;
mod rights;
mod sight;
mod work;
