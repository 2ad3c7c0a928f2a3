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
    for kind in chaos::kinds() {
        let row = chaos::row(env!("CARGO_BIN_EXE_flint").as_ref(), chaos::Plan::short(1), kind).unwrap();
        chaos::print(kind, &row);
        assert!(row.wrong.is_empty() && row.answers > 0, "{kind}: {row:#?}");
        assert!(row.faults > 0 || kind == "streams" && row.answers == 400, "{kind}: {row:#?}");
    }
}
