pub fn largest(numbers: &[i32]) -> Option<i32> {
    numbers.iter().copied().min()
}

pub fn sum(numbers: &[i32]) -> i32 {
    numbers.iter().sum()
}
