//! The egress gateway of a sandbox, as a part of its shim: on a thread of its own, so that whatever the sandbox does to it holds up nothing else.

mod authority;
mod gateway;
mod journal;
mod routes;

pub(super) use authority::make as make_authority;
pub(super) use gateway::{
    Egress, explain, mark, read, replace, set_policy, start, start_again, state, watch,
};

/// Stack of each thread here, in bytes: nothing recurses, and what waits is on the heap.
const STACK: usize = 512 << 10;
