#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sandbar_egress::fuzzing::dns_message(data));
