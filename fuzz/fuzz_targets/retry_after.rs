#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_http::fuzzing::retry_after(data));
