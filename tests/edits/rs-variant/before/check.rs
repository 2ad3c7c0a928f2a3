#[path = "lib.rs"]
mod lib;

#[test]
fn check() {
    assert_eq!(lib::name(&lib::Colour::Blue), "blue");
    assert_eq!(lib::name(&lib::Colour::Red), "red");
    assert_eq!(lib::name(&lib::Colour::Green), "green");
}
