#[path = "lib.rs"]
mod lib;

#[test]
fn check() {
    let rectangle = lib::Rectangle { width: 3, height: 4 };
    assert_eq!(rectangle.area(), 12);
    assert_eq!(rectangle.perimeter(), 14);
}
