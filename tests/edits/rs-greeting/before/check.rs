#[path = "lib.rs"]
mod lib;

#[test]
fn check() {
    assert_eq!(lib::greeting("Ann"), "Hello, Ann!");
}
