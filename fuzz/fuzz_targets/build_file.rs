#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_core::fuzzing::build_file(data));
