//! The operations' kernels: compiled for the card, found by name, launched.

use super::super::compile::{cached, compile, module};
use super::super::{Card, CudaError, Doing};
use super::few::{FEW_BYTES_MAX, Kind};
use super::layout::Layout;
use super::product::STAGED_BYTES_MAX;
use super::{held, several};
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
use cudarc::driver::sys::CUfunction_attribute_enum::{
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
};
use cudarc::driver::{CudaFunction, CudaModule, sys};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Everything but attention, whose kernels have the length of a head as a constant.
const GENERAL: [(&str, &str); 16] = [
    ("base.cuh", include_str!("../../../../kernels/ops/base.cuh")),
    ("formats.cuh", include_str!("../../../../kernels/ops/formats.cuh")),
    ("cluster.cuh", include_str!("../../../../kernels/ops/cluster.cuh")),
    ("rows.cuh", include_str!("../../../../kernels/ops/rows.cuh")),
    ("product.cu", include_str!("../../../../kernels/ops/product.cu")),
    ("rows.cu", include_str!("../../../../kernels/ops/rows.cu")),
    ("experts.cu", include_str!("../../../../kernels/ops/experts.cu")),
    ("logits.cu", include_str!("../../../../kernels/ops/logits.cu")),
    ("stream.cuh", include_str!("../../../../kernels/ops/stream.cuh")),
    ("few.cu", include_str!("../../../../kernels/ops/few.cu")),
    ("flow.cuh", include_str!("../../../../kernels/ops/flow.cuh")),
    ("several.cu", include_str!("../../../../kernels/ops/several.cu")),
    ("screen.cu", include_str!("../../../../kernels/ops/screen.cu")),
    ("route.cu", include_str!("../../../../kernels/ops/route.cu")),
    ("held.cu", include_str!("../../../../kernels/ops/held.cu")),
    ("blend.cu", include_str!("../../../../kernels/ops/blend.cu")),
];

const ATTENTION: [(&str, &str); 7] = [
    ("base.cuh", include_str!("../../../../kernels/ops/base.cuh")),
    ("cluster.cuh", include_str!("../../../../kernels/ops/cluster.cuh")),
    ("rows.cuh", include_str!("../../../../kernels/ops/rows.cuh")),
    ("heads.cu", include_str!("../../../../kernels/ops/heads.cu")),
    ("attend.cu", include_str!("../../../../kernels/ops/attend.cu")),
    ("fold.cu", include_str!("../../../../kernels/ops/fold.cu")),
    ("attend_one.cu", include_str!("../../../../kernels/ops/attend_one.cu")),
];

/// What runs once, when a model is loaded.
const REPACK: [(&str, &str); 3] = [
    ("base.cuh", include_str!("../../../../kernels/ops/base.cuh")),
    ("formats.cuh", include_str!("../../../../kernels/ops/formats.cuh")),
    ("repack.cu", include_str!("../../../../kernels/ops/repack.cu")),
];

const MADE_UP: [(&str, &str); 2] = [
    ("base.cuh", include_str!("../../../../kernels/ops/base.cuh")),
    ("made_up.cu", include_str!("../../../../kernels/ops/made_up.cu")),
];

/// Shared memory that a block of `attend_one` may ask for: every card has it.
const ONE_BYTES_MAX: usize = 96 << 10;

/// A kernel with the shared memory that it asks for at launch.
pub struct Kernel {
    function: CudaFunction,
    shared_bytes: u32,
}

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub blocks: (usize, usize, usize),
    pub threads: usize,
}

impl Grid {
    pub fn rows(blocks: usize, threads: usize) -> Grid {
        Grid { blocks: (blocks, 1, 1), threads }
    }
}

impl Kernel {
    fn find(module: &Arc<CudaModule>, name: &str) -> Result<Kernel, CudaError> {
        let function = module.load_function(name).doing("finding a kernel")?;
        Ok(Kernel { function, shared_bytes: 0 })
    }

    /// With as much shared memory as the module's constant `constant` says.
    fn find_shared(
        card: &Card,
        module: &Arc<CudaModule>,
        name: &str,
        constant: &str,
    ) -> Result<Kernel, CudaError> {
        let shared_bytes = constant_of(card, module, constant)?;
        let kernel = Kernel { shared_bytes, ..Kernel::find(module, name)? };
        kernel.allow_shared(shared_bytes as usize)?;
        Ok(kernel)
    }

    /// Leaves as much of a multiprocessor's memory to be shared as can be: where it would have to be divided anew, a kernel could not
    /// begin beside the one before.
    fn share_most(self) -> Result<Kernel, CudaError> {
        self.function
            .set_attribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
            .doing("asking for shared memory")?;
        Ok(self)
    }

    fn allow_shared(&self, bytes: usize) -> Result<(), CudaError> {
        self.function
            .set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes as i32)
            .doing("asking for shared memory")
    }

    /// Every kernel waits for the one before it by itself, and may begin before that.
    ///
    /// # Safety
    /// The arguments are those of the kernel, in order, and what they point to outlives the launch.
    pub unsafe fn launch<const N: usize>(
        &self,
        card: &Card,
        grid: Grid,
        args: [*mut c_void; N],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.launch_with(card, grid, self.shared_bytes as usize, args) }
    }

    /// With another amount of shared memory.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    pub unsafe fn launch_with<const N: usize>(
        &self,
        card: &Card,
        grid: Grid,
        shared_bytes: usize,
        args: [*mut c_void; N],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.launch_as(card, grid, (shared_bytes, 1), args) }
    }

    /// So many blocks in the third dimension see each other's shared memory, from sm_90 on.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    pub unsafe fn launch_in_clusters<const N: usize>(
        &self,
        card: &Card,
        grid: Grid,
        cluster: usize,
        args: [*mut c_void; N],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller promises.
        unsafe { self.launch_as(card, grid, (self.shared_bytes as usize, cluster), args) }
    }

    /// # Safety
    /// As [`Kernel::launch`].
    unsafe fn launch_as<const N: usize>(
        &self,
        card: &Card,
        grid: Grid,
        (shared_bytes, cluster): (usize, usize),
        mut args: [*mut c_void; N],
    ) -> Result<(), CudaError> {
        let Grid { blocks: (x, y, z), threads } = grid;
        if x * y * z == 0 {
            return Ok(());
        }
        // SAFETY: numbers and unions of numbers and pointers, for which zeros are nothing.
        let mut attributes: [sys::CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
        attributes[0].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[0].value.programmaticStreamSerializationAllowed = 1;
        attributes[1].id = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attributes[1].value.clusterDim.x = 1;
        attributes[1].value.clusterDim.y = 1;
        attributes[1].value.clusterDim.z = cluster as u32;
        let config = sys::CUlaunchConfig {
            gridDimX: x as u32,
            gridDimY: y as u32,
            gridDimZ: z as u32,
            blockDimX: threads as u32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes as u32,
            hStream: card.stream.cu_stream(),
            attrs: attributes.as_mut_ptr(),
            // Older cards finish one kernel before they begin the next, and have no clusters.
            numAttrs: if card.capability.0 >= 9 { 1 + u32::from(cluster > 1) } else { 0 },
        };
        let (function, nothing) = (self.function.cu_function(), std::ptr::null_mut());
        // SAFETY: as the caller promises; the attributes live until the call returns.
        unsafe { sys::cuLaunchKernelEx(&config, function, args.as_mut_ptr(), nothing) }
            .result()
            .doing("launching a kernel")
    }
}

/// A number that the module tells about itself.
fn constant_of(card: &Card, module: &Arc<CudaModule>, name: &str) -> Result<u32, CudaError> {
    let global = module.get_global(name, &card.stream).doing("finding a constant")?;
    let bytes: Vec<u8> = card.stream.clone_dtoh(&global).doing("reading a constant")?;
    card.finish()?;
    Ok(u32::from_le_bytes(bytes.first_chunk::<4>().copied().unwrap_or_default()))
}

/// A kernel's argument.
pub fn arg<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// A mixture of a few rows.
pub struct Blend {
    pub kernel: Kernel,
    pub ranges: usize,     // in a slot of a group's ring
    pub unit_bytes: usize, // of such a slot
}

/// The products of one layout of weights.
pub struct Products {
    pub few: [Kernel; Kind::ALL.len()], // for a few rows, with what comes before and after
    pub stage_bytes: usize,             // of a block of those
    pub several: [Kernel; several::Kind::ALL.len()], // for some rows
    pub several_stage_bytes: usize,
    pub route: Kernel,
    pub held: [Kernel; 2], // rows that are to be normalised, and ready ones
    pub blend: Blend,
    pub split: [Kernel; 4], // for at most 8, 16, 32, 64 rows
    pub wide: Kernel,
}

/// The likeliest token without reading all of the head.
pub struct Screening {
    pub rows: [Kernel; 2], // bounds of all, for at most 8 and 16 rows
    pub ahead: usize,      // units that may be read past the last one
    pub threads: usize,
    pub levels8: Kernel, // the second look, by the head's layout
    pub floats: Kernel,
}

pub struct Kernels {
    pub products: [Products; 4], // by `Layout`
    pub embed: Kernel,
    pub prepare: Kernel,
    pub activate: Kernel,
    pub mix: Kernel,
    pub mix_normed: Kernel,
    pub choose: Kernel,
    pub group: Kernel,
    pub best: Kernel,
    pub screening: Screening,
    pub change: Kernel,
    pub weigh: Kernel,
    pub several_bytes_max: usize, // of shared memory that a block may ask for
    pub held_bytes_max: usize,
    pub several_groups: usize, // of warps in a block
    pub several_threads: usize,
    pub several_row_bytes: usize, // of shared memory for each input row, beside the row
    pub blend_row_bytes: usize,   // the same
    pub blend_threads: usize,
    pub blend_slots_max: usize, // of a group's ring
    pub write_outside: Kernel,
}

/// Attention of one row a sequence.
pub struct One {
    pub usual: Kernel,
    pub beside_held: Kernel, // the same, with memory divided as its neighbours have it
}

/// Kernels for heads of one length.
pub struct AttentionKernels {
    pub place: Kernel,
    pub one: Option<One>, // where a block can have the memory
    pub fold_near: Kernel,
    pub near_columns: usize, // of a range, that it takes
    pub whole: Kernel,
    pub split: Kernel,
    pub fold: Kernel,
}

/// Kernels that make weights of one path those of the other.
pub struct RepackKernels {
    pub rows: Kernel,
    pub round: Kernel,
    pub experts: Kernel,
    pub levels4: Kernel,
    pub levels8: Kernel,
    pub transpose: Kernel,
    pub by_turns: Kernel,
}

impl RepackKernels {
    pub fn load(card: &Card, cache: &Path) -> Result<RepackKernels, CudaError> {
        let module = module(card, &source("", &REPACK), cache)?;
        let find = |name: &str| Kernel::find(&module, name);
        Ok(RepackKernels {
            rows: find("pack_rows")?,
            round: find("round_rows")?,
            experts: find("pack_experts")?,
            levels4: find("pack_levels4")?,
            levels8: find("pack_levels8")?,
            transpose: find("transpose_rows")?,
            by_turns: find("by_turns")?,
        })
    }
}

/// Kernels for measuring.
pub struct MadeUpKernels {
    pub codes: Kernel,
    pub scales: Kernel,
    pub read: Kernel,
}

impl MadeUpKernels {
    pub fn load(card: &Card, cache: &Path) -> Result<MadeUpKernels, CudaError> {
        let module = module(card, &source("", &MADE_UP), cache)?;
        let find = |name: &str| Kernel::find(&module, name);
        Ok(MadeUpKernels {
            codes: find("fill_codes")?,
            scales: find("fill_scales")?,
            read: find("read_all")?,
        })
    }
}

fn source(prelude: &str, files: &[(&str, &str)]) -> String {
    files
        .iter()
        .fold(prelude.to_string(), |text, (name, file)| text + &format!("#line 1 \"{name}\"\n{file}\n"))
}

fn general_source() -> String {
    source("", &GENERAL)
}

fn attention_source(head_dim: usize) -> String {
    source(&format!("#define HEAD_DIM {head_dim}\n"), &ATTENTION)
}

/// Machine code of all operations for an architecture (`sm_80`), in the folder `cache` if one is given: this needs the
/// compiler, but no card.
pub fn compile_operations(arch: &str, head_dims: &[usize], cache: Option<&Path>) -> Result<(), CudaError> {
    let attention = head_dims.iter().map(|&dim| attention_source(dim));
    let others = [general_source(), source("", &REPACK), source("", &MADE_UP)];
    for source in others.into_iter().chain(attention) {
        match cache {
            Some(cache) => cached(&source, arch, cache)?,
            None => compile(&source, arch)?,
        };
    }
    Ok(())
}

impl Kernels {
    pub fn load(card: &Card, cache: &Path) -> Result<Kernels, CudaError> {
        let module = module(card, &general_source(), cache)?;
        let find = |name: &str| Kernel::find(&module, name);
        let most = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let most = card.context.attribute(most).doing("asking for shared memory")?.unsigned_abs() as usize;
        let several_bytes_max = most.saturating_sub(several::STATIC_BYTES);
        let held_bytes_max = most.saturating_sub(held::STATIC_BYTES);
        let large = |name: &str, bytes: usize| {
            let kernel = find(name)?;
            kernel.allow_shared(bytes)?;
            Ok::<Kernel, CudaError>(kernel)
        };
        let products = |layout: Layout| -> Result<Products, CudaError> {
            let name = layout.name();
            let split = |rows: usize| {
                let kernel = find(&format!("split_{name}_{rows}"))?;
                kernel.allow_shared(STAGED_BYTES_MAX)?;
                Ok(kernel)
            };
            let few = |kind: Kind| {
                let kernel = find(&format!("few_{}_{name}", kind.name()))?;
                kernel.allow_shared(FEW_BYTES_MAX)?;
                Ok(kernel)
            };
            let several =
                |kind: several::Kind| large(&format!("several_{}_{name}", kind.name()), several_bytes_max);
            let held = |source: &str| large(&format!("held_{source}_{name}"), held_bytes_max)?.share_most();
            let [normed, plain, ready, gated, experts, mix] = Kind::ALL;
            let [some, some_gated, some_in, some_out] = several::Kind::ALL;
            let (wide, bytes) = (format!("wide_{name}"), format!("wide_{name}_bytes"));
            Ok(Products {
                few: [few(normed)?, few(plain)?, few(ready)?, few(gated)?, few(experts)?, few(mix)?],
                stage_bytes: constant_of(card, &module, &format!("few_{name}_stages"))? as usize,
                several: [several(some)?, several(some_gated)?, several(some_in)?, several(some_out)?],
                several_stage_bytes: constant_of(card, &module, &format!("several_{name}_stages"))? as usize,
                route: find(&format!("route_{name}"))?,
                held: [held("normed")?, held("ready")?],
                blend: Blend {
                    kernel: large(&format!("blend_{name}"), several_bytes_max)?.share_most()?,
                    ranges: constant_of(card, &module, &format!("blend_{name}_ranges"))? as usize,
                    unit_bytes: constant_of(card, &module, &format!("blend_{name}_unit"))? as usize,
                },
                split: [split(8)?, split(16)?, split(32)?, split(64)?],
                wide: Kernel::find_shared(card, &module, &wide, &bytes)?,
            })
        };
        let [a, b, c, d] = Layout::ALL;
        Ok(Kernels {
            products: [products(a)?, products(b)?, products(c)?, products(d)?],
            embed: find("embed")?,
            prepare: find("prepare")?,
            activate: find("activate")?,
            mix: find("mix")?,
            mix_normed: find("mix_normed")?.share_most()?,
            choose: find("choose")?,
            group: find("group")?,
            best: find("best")?,
            screening: Screening {
                rows: [
                    large("screen_rows_8", several_bytes_max)?,
                    large("screen_rows_16", several_bytes_max)?,
                ],
                ahead: constant_of(card, &module, "screen_ahead")? as usize,
                threads: constant_of(card, &module, "screen_threads")? as usize,
                levels8: find("screen_look_levels8")?,
                floats: find("screen_look_floats")?,
            },
            change: find("change")?,
            weigh: find("weigh")?,
            several_bytes_max,
            held_bytes_max,
            several_groups: constant_of(card, &module, "several_groups")? as usize,
            several_threads: constant_of(card, &module, "several_threads")? as usize,
            several_row_bytes: constant_of(card, &module, "several_row_bytes")? as usize,
            blend_row_bytes: constant_of(card, &module, "blend_row_bytes")? as usize,
            blend_threads: constant_of(card, &module, "blend_threads")? as usize,
            blend_slots_max: constant_of(card, &module, "blend_slots_max")? as usize,
            write_outside: find("write_outside")?,
        })
    }

    pub fn products(&self, layout: Layout) -> &Products {
        &self.products[layout as usize]
    }
}

impl AttentionKernels {
    pub fn load(card: &Card, head_dim: usize, cache: &Path) -> Result<AttentionKernels, CudaError> {
        let module = module(card, &attention_source(head_dim), cache)?;
        let shared = |name: &str| Kernel::find_shared(card, &module, name, "attend_bytes");
        let one_bytes = constant_of(card, &module, "attend_one_bytes")? as usize;
        let find_one = |name: &str| Kernel::find_shared(card, &module, name, "attend_one_bytes");
        let one = match one_bytes <= ONE_BYTES_MAX {
            true => Some(One {
                usual: find_one("attend_one")?,
                beside_held: find_one("attend_one_beside_held")?.share_most()?,
            }),
            false => None,
        };
        Ok(AttentionKernels {
            place: Kernel::find(&module, "place")?,
            one,
            fold_near: Kernel::find(&module, "attend_fold_near")?,
            near_columns: constant_of(card, &module, "attend_near_columns")? as usize,
            whole: shared("attend_whole")?,
            split: shared("attend_split")?,
            fold: Kernel::find(&module, "attend_fold")?,
        })
    }
}
