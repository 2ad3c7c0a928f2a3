#[path = "lib.rs"]
mod lib;

#[test]
fn check() {
    assert_eq!(lib::shout("hey"), "HEY!");
}
