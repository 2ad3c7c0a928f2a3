//! What the kernel is given: the twin of `kernels/params.cuh`.

/// Addresses on the card, then numbers, in the kernel's order.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Params {
    pub qkv_scale: u64,
    pub qkv_bias: u64,
    pub out_scale: u64,
    pub out_bias: u64,
    pub gate_up_scale: u64,
    pub gate_up_bias: u64,
    pub down_scale: u64,
    pub down_bias: u64,
    pub head: u64,
    pub head_coarse: u64,
    pub head_scale: u64,
    pub embedding: u64,
    pub router: u64,
    pub router_bias: u64,
    pub q_norm: u64,
    pub k_norm: u64,
    pub attention_norm: u64,
    pub mixture_norm: u64,
    pub final_norm: u64,
    pub sinks: u64,
    pub frequencies: u64,

    pub cache: u64,
    pub paged: u64,
    pub blocks: u64,

    pub qkv_parts: u64,
    pub out_parts: u64,
    pub down_parts: u64,
    pub partial_values: u64,
    pub partial_weights: u64,
    pub attended: u64,
    pub inner: u64,
    pub router_sums: u64,
    pub best: u64,
    pub bounds: u64,

    pub told_tokens: u64,
    pub stop: u64,
    pub logits: u64,
    pub clocks: u64,

    pub norm_eps: f32,
    pub rope_magnitude: f32,
    pub cache_blocks: u32,
    pub unused: u32,
}

/// What differs from launch to launch: the kernel's argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    pub forced: u64,
    pub forced_count: u32,
    pub token: u32,
    pub position: u32,
    pub steps: u32,
    pub counted: u32,
    pub screened: u32, // only the likeliest token is wanted, and no logits
}

// SAFETY: plain numbers, in the layout of the kernel's argument.
unsafe impl cudarc::driver::DeviceRepr for Start {}

impl Params {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: plain numbers in C's layout, an even count of 4-byte ones at the end: no byte is padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Params>()) }
    }
}
