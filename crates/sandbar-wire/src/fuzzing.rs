//! What the fuzz targets run (decision 0009): each function takes any bytes and panics where a promise does not hold.

mod frames;
mod messages;

pub use frames::frames;
pub use messages::{filesystem_messages, plain_messages, process_messages};

#[cfg(test)]
mod tests {
    sandbar_replay::replay_tests!(frames, process_messages, filesystem_messages, plain_messages);
}
