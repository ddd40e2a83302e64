#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_engine::fuzzing::subordinate_ids(data));
