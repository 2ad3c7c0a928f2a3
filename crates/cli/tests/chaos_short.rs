//! The short form of `cargo xtask chaos`: its own code, on the program under test.

#[allow(dead_code)]
#[path = "../../../xtask/src/chaos/mod.rs"]
mod chaos;
mod support;
#[allow(dead_code, unused_imports)]
#[path = "../../../xtask/src/wire/mod.rs"]
mod wire;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[test]
fn every_byte_arrives_whatever_happens() {
    support::model_file();
    let rows = chaos::rows(env!("CARGO_BIN_EXE_flint").as_ref(), chaos::Plan::short(1)).unwrap();
    assert_eq!(rows[0].answers, 100, "{rows:#?}");
    assert!(rows.iter().all(|row| row.wrong.is_empty() && row.answers > 0), "{rows:#?}");
}
