//! Kernels from their source: compiled for the card and the shape, and kept on disk.

use super::{Card, CudaError, Doing, Shape};
use cudarc::driver::CudaModule;
use cudarc::nvrtc::{Ptx, result, sys};
use std::ffi::{CStr, CString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// In the order in which they build on one another.
const SOURCES: [(&str, &str); 14] = [
    ("base.cuh", include_str!("../../../kernels/base.cuh")),
    ("params.cuh", include_str!("../../../kernels/params.cuh")),
    ("sync.cuh", include_str!("../../../kernels/sync.cuh")),
    ("tagged.cuh", include_str!("../../../kernels/tagged.cuh")),
    ("pack.cuh", include_str!("../../../kernels/pack.cuh")),
    ("cache.cuh", include_str!("../../../kernels/cache.cuh")),
    ("ring.cuh", include_str!("../../../kernels/ring.cuh")),
    ("product.cuh", include_str!("../../../kernels/product.cuh")),
    ("staging.cuh", include_str!("../../../kernels/staging.cuh")),
    ("router.cuh", include_str!("../../../kernels/router.cuh")),
    ("screen.cuh", include_str!("../../../kernels/screen.cuh")),
    ("attention.cuh", include_str!("../../../kernels/attention.cuh")),
    ("decode.cu", include_str!("../../../kernels/decode.cu")),
    ("fill.cu", include_str!("../../../kernels/fill.cu")),
];

/// How kernels are made.
#[derive(Debug, Clone, Default)]
pub struct Build {
    pub cache: PathBuf,           // folder for what was compiled
    pub marking: bool,            // kernels measure their stages, which costs a little
    pub sources: Option<PathBuf>, // a folder of kernels to take instead of the built-in ones
}

/// The kernels for this card and shape.
pub fn kernels(card: &Card, shape: &Shape, build: &Build) -> Result<Arc<CudaModule>, CudaError> {
    shape.check()?;
    can_run(card)?;
    module(card, &source(&shape.prelude(build.marking), build.sources.as_deref())?, &build.cache)
}

/// Whether the card is new enough for them.
pub(super) fn can_run(card: &Card) -> Result<(), CudaError> {
    let (major, minor) = card.capability;
    match major >= 9 {
        true => Ok(()),
        false => {
            let problem =
                format!("{} is sm_{major}{minor}; the decode kernel needs sm_90 or later", card.name);
            Err(CudaError::Unsupported(problem))
        }
    }
}

/// The kernels for a shape as machine code of an architecture (`sm_90a`), in the folder `cache` if one is given: this
/// needs the compiler, but no card.
pub fn machine_code(shape: &Shape, arch: &str, cache: Option<&Path>) -> Result<Vec<u8>, CudaError> {
    shape.check()?;
    let source = source(&shape.prelude(false), None)?;
    match cache {
        Some(cache) => cached(&source, arch, cache),
        None => compile(&source, arch),
    }
}

/// Whether kernels can be compiled here.
pub fn compiler_present() -> bool {
    // SAFETY: only looks for the library.
    unsafe { sys::is_culib_present() }
}

/// A module of this source for this card. What was compiled once is taken from the folder `cache`; a folder that
/// cannot be written only costs the next start its time.
pub(super) fn module(card: &Card, source: &str, cache: &Path) -> Result<Arc<CudaModule>, CudaError> {
    let arch = architecture(card.capability);
    let load = |cubin| card.context.load_module(Ptx::from_binary(cubin));
    let path = place(source, &arch, driver_version(), cache);
    if let Some(module) = fs::read(&path).ok().and_then(|kept| load(kept).ok()) {
        return Ok(module);
    }
    // Not there, or not what was kept.
    load(compile_to(&path, source, &arch)?).doing("loading the kernels")
}

/// The machine code of this source for an architecture, compiled if it is not in the folder `cache` yet.
pub(super) fn cached(source: &str, arch: &str, cache: &Path) -> Result<Vec<u8>, CudaError> {
    let path = place(source, arch, 0, cache);
    fs::read(&path).or_else(|_| compile_to(&path, source, arch))
}

fn compile_to(path: &Path, source: &str, arch: &str) -> Result<Vec<u8>, CudaError> {
    let cubin = compile(source, arch)?;
    let _ = keep(path, &cubin);
    Ok(cubin)
}

/// 0 where it is not known.
fn driver_version() -> i32 {
    let mut version = 0;
    // SAFETY: the driver is loaded, since there is a card, and writes one number.
    let _ = unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) };
    version
}

/// Everything in one text: the compiler needs no files, and its messages still name them.
fn source(prelude: &str, folder: Option<&Path>) -> Result<String, CudaError> {
    let mut text = prelude.to_string();
    for (name, built_in) in SOURCES {
        let source = match folder.map(|folder| folder.join(name)) {
            Some(path) => fs::read_to_string(&path).map_err(|error| CudaError::File { path, error })?,
            None => built_in.to_string(),
        };
        text += &format!("#line 1 \"{name}\"\n{source}\n");
    }
    Ok(text)
}

fn architecture((major, minor): (i32, i32)) -> String {
    let own = if major >= 9 { "a" } else { "" };
    format!("sm_{major}{minor}{own}")
}

/// Where machine code is kept, by all that it follows from.
fn place(source: &str, arch: &str, driver: i32, cache: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (source, arch, driver).hash(&mut hasher);
    cache.join(format!("{:016x}.cubin", hasher.finish()))
}

/// Written beside and renamed: nobody sees half a file.
fn keep(path: &Path, cubin: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&beside, cubin)?;
    fs::rename(beside, path)
}

pub(super) fn compile(source: &str, arch: &str) -> Result<Vec<u8>, CudaError> {
    if !compiler_present() {
        return Err(CudaError::NoCompiler);
    }
    let text = CString::new(source).map_err(|_| CudaError::Compile("a zero byte in the source".into()))?;
    let program = result::create_program(&text, Some(c"flint.cu"))
        .map_err(|error| CudaError::Compile(format!("{error:?}")))?;
    let options = [format!("--gpu-architecture={arch}"), "--std=c++17".into(), "-default-device".into()];
    // SAFETY: `program` was just made and is destroyed below, after its last use.
    let outcome = unsafe {
        result::compile_program(program, &options)
            .map_err(|_| CudaError::Compile(log(program)))
            .and_then(|()| cubin(program))
    };
    // SAFETY: as above.
    let _ = unsafe { result::destroy_program(program) };
    outcome
}

fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: the program is alive; NVRTC ends the text with a zero.
    let bytes = unsafe { result::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().into_owned())
}

fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, CudaError> {
    let failed = |error| CudaError::Compile(format!("no machine code: {error:?}"));
    let mut size = 0;
    // SAFETY: the program is alive, and the buffer has the size that NVRTC asks for.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(failed)?;
        let mut bytes = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()).result().map_err(failed)?;
        Ok(bytes)
    }
}
