// Blocks that see each other's shared memory: clusters, from sm_90 on. Nothing of this is launched before.

// Before the first wait: a block whose memory another one writes must have begun.
__device__ inline void begin_in_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

// What was written before can be read after the wait.
__device__ inline void arrive_in_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}

// Blocks that have ended are not waited for.
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// Where the `rank`-th block of the cluster has what this one has at `at`.
__device__ inline u32 shared_of_block(const void* at, int rank) {
    u32 address = 0;
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(at)), "r"(rank));
#endif
    return address;
}

__device__ inline float4 read_block_four(u32 at) {
    float4 v = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
#endif
    return v;
}

__device__ inline float2 read_block_two(u32 at) {
    float2 v = {0, 0};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
#endif
    return v;
}

__device__ inline void write_block(u32 at, float value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
#endif
}
