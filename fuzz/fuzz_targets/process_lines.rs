#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_engine::fuzzing::process_lines(data));
