pub fn divide(a: i32, b: i32) -> Option<i32> {
    Some(a / b)
}
