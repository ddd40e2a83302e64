#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_archive::fuzzing::tar_stream(data));
