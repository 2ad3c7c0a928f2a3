// Waiting: for the warps of a block, and for copies into shared memory.

// Of the warps that compute; those that bring pieces never wait for them here.
__device__ inline void block_sync() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// ---- Bulk copies: one instruction moves kilobytes, and a barrier in shared memory counts the bytes.

__device__ inline u32 shared_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }

__device__ inline void copy_barrier_init(u64* barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

// Makes initialised barriers known to the copy engine.
__device__ inline void copy_barriers_ready() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Makes what other blocks wrote, and this thread knows to be there, known to the copy engine.
__device__ inline void written_for_copies() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// What is copied is read once: it should not push activations out of the second-level cache.
__device__ inline void copy_begin(void* to, const void* from, u32 bytes, u64* barrier) {
    const u32 at = shared_address(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("{ .reg .b64 once; createpolicy.fractional.L2::evict_first.b64 once, 1.0;"
                 " cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], once; }" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(at)
                 : "memory");
}

// Whether it is there already, the same in all lanes.
__device__ inline bool copy_done(u64* barrier, u32 parity) {
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return __all_sync(~0u, done);
}

__device__ inline void copy_wait(u64* barrier, u32 parity) {
    const u32 at = shared_address(barrier);
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!done);
}
