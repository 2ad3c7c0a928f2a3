#[path = "lib.rs"]
mod lib;

#[test]
fn check() {
    assert_eq!(lib::divide(7, 2), Some(3));
    assert_eq!(lib::divide(7, 0), None);
}
