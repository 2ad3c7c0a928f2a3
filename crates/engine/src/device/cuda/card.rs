//! One card: its context, its memory, and where the host and it meet.

use super::{CudaError, Doing};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DeviceRepr, result, sys};
use std::ffi::c_void;
use std::sync::Arc;

#[derive(Clone)]
pub struct Card {
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    pub name: String,
    pub capability: (i32, i32),
    pub multiprocessors: usize,
}

/// A card that was seen, but not opened.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: String,
    pub bytes: u64, // of memory, in all
    pub capability: (i32, i32),
    pub bandwidth: Option<f64>, // bytes a second, as its clock and its bus say
}

impl Listed {
    /// Whether the operations run on it.
    pub fn check(&self) -> Result<(), CudaError> {
        new_enough(&self.name, self.capability)
    }

    fn of(ordinal: i32) -> Result<Listed, CudaError> {
        use sys::CUdevice_attribute as Attribute;
        let device = result::device::get(ordinal).doing("asking for a card")?;
        // SAFETY: `device` was just given by the driver.
        unsafe {
            let ask = |attribute| result::device::get_attribute(device, attribute);
            Ok(Listed {
                name: result::device::get_name(device).doing("asking for the name")?,
                bytes: result::device::total_mem(device).doing("asking for memory")? as u64,
                capability: (
                    ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
                        .doing("asking for the capability")?,
                    ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
                        .doing("asking for the capability")?,
                ),
                bandwidth: bandwidth(
                    ask(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE).ok(),
                    ask(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH).ok(),
                ),
            })
        }
    }
}

/// Two transfers a clock, of as many bits as the bus is wide. Some drivers say 0 for what they do not tell.
fn bandwidth(clock_khz: Option<i32>, bus_bits: Option<i32>) -> Option<f64> {
    let bytes = 2.0 * 1e3 * f64::from(clock_khz?) * f64::from(bus_bits?) / 8.0;
    (bytes > 0.0).then_some(bytes)
}

pub(super) fn new_enough(name: &str, (major, minor): (i32, i32)) -> Result<(), CudaError> {
    match major >= 8 {
        true => Ok(()),
        false => {
            let problem = format!("{name} is sm_{major}{minor}; Flint needs sm_80 or later");
            Err(CudaError::Unsupported(problem))
        }
    }
}

/// Bytes on the card, freed when dropped.
pub struct Bytes {
    pub(super) slice: CudaSlice<u8>,
    pub address: u64,
}

impl Bytes {
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slice.len() == 0
    }
}

impl Card {
    /// The first card, if there are a driver and a card.
    pub fn open() -> Result<Card, CudaError> {
        // SAFETY: only looks for the library; loading the driver runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().map_err(|_| CudaError::NoCard)?;
        if CudaContext::device_count().doing("counting cards")? == 0 {
            return Err(CudaError::NoCard);
        }
        let context = CudaContext::new(0).doing("opening the card")?;
        let stream = context.new_stream().doing("making a stream")?;
        let multiprocessors = context
            .attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .doing("asking for multiprocessors")?;
        Ok(Card {
            name: context.name().doing("asking for the name")?,
            capability: context.compute_capability().doing("asking for the capability")?,
            multiprocessors: multiprocessors.unsigned_abs() as usize,
            context,
            stream,
        })
    }

    /// The cards that the driver shows, without opening any.
    pub fn list() -> Result<Vec<Listed>, CudaError> {
        // SAFETY: only looks for the library; loading the driver runs no code of ours.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().map_err(|_| CudaError::NoCard)?;
        let count = result::device::get_count().doing("counting cards")?;
        (0..count).map(Listed::of).collect()
    }

    /// Bytes free and in all.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.context.mem_get_info().doing("asking for free memory")
    }

    pub fn zeros(&self, bytes: usize) -> Result<Bytes, CudaError> {
        let slice = self.stream.alloc_zeros::<u8>(bytes.max(16)).doing("allocating on the card")?;
        let address = slice.device_ptr(&self.stream).0;
        Ok(Bytes { slice, address })
    }

    pub fn upload<T: Copy + DeviceRepr>(&self, values: &[T]) -> Result<Bytes, CudaError> {
        let mut bytes = self.zeros(size_of_val(values))?;
        // SAFETY: `T` is plain data, seen as the bytes that it consists of.
        let raw = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        if !raw.is_empty() {
            self.stream
                .memcpy_htod(raw, &mut bytes.slice.slice_mut(..raw.len()))
                .doing("copying to the card")?;
        }
        Ok(bytes)
    }

    pub fn download_f32(&self, bytes: &Bytes, count: usize) -> Result<Vec<f32>, CudaError> {
        let raw = self.stream.clone_dtoh(&bytes.slice).doing("copying from the card")?;
        self.finish()?;
        Ok(raw.chunks_exact(4).take(count).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    pub fn finish(&self) -> Result<(), CudaError> {
        self.stream.synchronize().doing("waiting for the card")
    }

    /// Whether everything that was begun is done; an error if it failed.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        // SAFETY: the stream is alive.
        match unsafe { sys::cuStreamQuery(self.stream.cu_stream()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            failed => failed.result().map(|()| true).doing("waiting for the card"),
        }
    }
}

/// Words of host memory that the card reads and writes in place.
pub struct Mapped {
    host: *mut u32,
    pub address: u64,
    len: usize,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to this value alone on the host side, and all access is volatile.
unsafe impl Send for Mapped {}

impl Mapped {
    pub fn new(card: &Card, len: usize) -> Result<Mapped, CudaError> {
        card.context.bind_to_thread().doing("binding the card")?;
        // SAFETY: the pointers are checked by the driver, and `len` words are what was asked for.
        unsafe {
            let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP;
            let host: *mut c_void = result::malloc_host(len * 4, flags).doing("allocating mapped memory")?;
            std::ptr::write_bytes(host.cast::<u8>(), 0, len * 4);
            let mut address = 0;
            sys::cuMemHostGetDevicePointer_v2(&mut address, host, 0).result().doing("mapping host memory")?;
            Ok(Mapped { host: host.cast(), address, len, context: card.context.clone() })
        }
    }

    pub fn get(&self, index: usize) -> u32 {
        assert!(index < self.len, "word {index} of {}", self.len);
        // SAFETY: within the allocation; the card may write at any time, hence volatile.
        unsafe { self.host.add(index).read_volatile() }
    }

    pub fn set(&self, index: usize, value: u32) {
        assert!(index < self.len, "word {index} of {}", self.len);
        // SAFETY: as above.
        unsafe { self.host.add(index).write_volatile(value) }
    }

    pub fn at(&self, index: usize) -> u64 {
        self.address + 4 * index as u64
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Words that the card reads once they are there.
    pub fn put(&mut self, index: usize, words: &[u32]) {
        assert!(index + words.len() <= self.len, "{} words from {index} on of {}", words.len(), self.len);
        // SAFETY: within the allocation, which is not the caller's.
        unsafe { self.host.add(index).copy_from_nonoverlapping(words.as_ptr(), words.len()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `malloc_host` and freed once. A failure leaves nothing to be done.
            let _ = unsafe { result::free_host(self.host.cast()) };
        }
    }
}
