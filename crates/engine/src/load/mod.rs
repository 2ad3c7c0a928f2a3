//! Model files. Everything in them is hostile until it has been checked here.

mod tensor;

pub use tensor::Tensor;
