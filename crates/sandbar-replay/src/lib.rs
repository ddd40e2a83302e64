//! The quick size of the fuzz targets: every seed of a target, and a fixed number of changed ones, on any toolchain. The long size is
//! `cargo xtask fuzz`. Both run the same functions, the module `fuzzing` of each crate (decision 0009).

mod mutate;
mod replay;
mod seeds;

pub use replay::{MUTATIONS, replay, replay_with};

/// A test for each fuzz target, which is a function of the module above.
#[macro_export]
macro_rules! replay_tests {
    ($($target:ident),* $(,)?) => {
        $(
            #[test]
            fn $target() {
                $crate::replay(stringify!($target), super::$target);
            }
        )*
    };
}
