//! Any bytes as a text that is read: see `tests/offline/texts.rs`.

#![no_main]

#[allow(dead_code)]
#[path = "../../tests/offline/texts.rs"]
mod texts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| texts::certificate(bytes));
