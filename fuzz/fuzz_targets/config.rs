#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flint_fuzz::kept::config(bytes));
