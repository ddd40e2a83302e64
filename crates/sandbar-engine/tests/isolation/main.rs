//! What a sandbox can see and do, from inside, in every mode this machine can give.

mod cost;
mod forged;
mod harness;
mod limits;
mod links;
mod modes;
mod network;
mod rights;
mod shared;
mod sight;
mod work;
