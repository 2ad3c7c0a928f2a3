//! NVIDIA cards: `ops` is a device like any other; beside it, the decode step as one kernel that makes many tokens a launch.
//!
//! Nothing of CUDA is needed to build this. Driver and compiler are found at run time; the kernels in
//! `crates/engine/kernels` are compiled on first use, for the card that is there and the model's shape.
//! docs/GPU.md tells the design.

mod card;
mod compile;
mod decode;
mod library;
mod made_up;
pub(crate) mod ops;
mod pack;
mod params;
mod shape;
mod weights;

pub use card::{Bytes, Card, Listed};
pub use compile::{Build, compiler_present, machine_code};
pub use decode::{Decoder, MARKS, Run, Sequence};
pub use library::find_compiler;
pub use made_up::{HostLayer, HostModel, Matrix8, Mxfp4};
pub use ops::{Cuda, Way, compile_operations};
pub use pack::{Packing, pack_8bit, pack_mxfp4};
pub use shape::Shape;

use cudarc::driver::DriverError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    #[error("no NVIDIA driver was found: install it, or use the CPU")]
    NoDriver,
    #[error("the NVIDIA driver shows no card: check `nvidia-smi`, or use the CPU")]
    NoCard,
    #[error(
        "NVRTC was not found: install the CUDA toolkit, or `python3 -m pip install nvidia-cuda-nvrtc`, or name its folder in LD_LIBRARY_PATH"
    )]
    NoCompiler,
    #[error("the kernels do not compile: {0}")]
    Compile(String),
    #[error("{doing}: {error:?}")]
    Driver { doing: &'static str, error: DriverError },
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("the card cannot run this: {0}")]
    Unsupported(String),
}

/// Says what failed.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, CudaError>;
}

impl<T> Doing<T> for Result<T, DriverError> {
    fn doing(self, doing: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Driver { doing, error })
    }
}
