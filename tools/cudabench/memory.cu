// Kernels that only move memory, and those that run beside others.

#include "tools/cudabench/bench.cuh"

namespace orrery::cudabench {

namespace {

constexpr int kThreads = 256;

__global__ void copy_kernel(float4* to, const float4* from, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        to[i] = from[i];
    }
}

__global__ void triad_kernel(float4* a, const float4* b, const float4* c, float s, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const float4 x = b[i];
        const float4 y = c[i];
        a[i] = make_float4(x.x + s * y.x, x.y + s * y.y, x.z + s * y.z, x.w + s * y.w);
    }
}

__global__ void read_kernel(float* sink, const float4* from, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    float sum = 0;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const float4 x = from[i];
        sum += x.x + x.y + x.z + x.w;
    }
    if (sum == 1.2345e30F) {  // never true: the sum only keeps the loads alive
        *sink = sum;
    }
}

__global__ void fill_kernel(float4* to, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        to[i] = make_float4(1, 2, 3, 4);
    }
}

// Stands in for a communication library's kernel: a few resident blocks that copy until told to stop.
__global__ void persistent_copy_kernel(float4* to, const float4* from, std::size_t count, const volatile int* stop,
                                       unsigned long long* copied) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    constexpr int kChunk = 64;
    std::size_t i = first;
    while (true) {
        for (int step = 0; step < kChunk; ++step) {
            to[i] = from[i];
            i = i + stride < count ? i + stride : first;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd_system(copied, static_cast<unsigned long long>(kChunk) * blockDim.x * sizeof(float4));
        }
        if (__syncthreads_or(*stop) != 0) {
            return;
        }
    }
}

__global__ void empty_kernel() {}

int blocks_for(std::size_t count) {
    int device = 0;
    int sms = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "number of multiprocessors");
    const std::size_t needed = (count + kThreads - 1) / kThreads;
    return static_cast<int>(needed < static_cast<std::size_t>(8 * sms) ? needed : 8 * sms);
}

}  // namespace

Prepared prepare_memory(const Point& point, Arena& arena) {
    const double bytes = point.dim("bytes");
    const auto count = static_cast<std::size_t>(bytes) / sizeof(float4);
    const int arrays = point.op == "copy" ? 2 : point.op == "triad" ? 3 : 1;
    Prepared out;
    out.operand_bytes = arrays * bytes;
    out.copies = copies_for(out.operand_bytes);
    std::vector<float4*> memory;
    for (int i = 0; i < out.copies * arrays; ++i) {
        memory.push_back(reinterpret_cast<float4*>(arena.normal<float>(bytes / sizeof(float))));
    }
    float* sink = static_cast<float*>(arena.take(sizeof(float)));
    const int blocks = blocks_for(count);
    const char kind = point.op[0];  // copy, triad, read, fill
    out.launch = [=](int copy, cudaStream_t stream) {
        float4* const* m = &memory[static_cast<std::size_t>(copy * arrays)];
        switch (kind) {
            case 'c':
                copy_kernel<<<blocks, kThreads, 0, stream>>>(m[0], m[1], count);
                break;
            case 't':
                triad_kernel<<<blocks, kThreads, 0, stream>>>(m[0], m[1], m[2], 3.0F, count);
                break;
            case 'r':
                read_kernel<<<blocks, kThreads, 0, stream>>>(sink, m[0], count);
                break;
            default:
                fill_kernel<<<blocks, kThreads, 0, stream>>>(m[0], count);
                break;
        }
        check(cudaGetLastError(), "memory kernel");
    };
    return out;
}

void launch_persistent_copy(void* to, const void* from, std::size_t bytes, int blocks, const int* stop,
                            unsigned long long* copied, cudaStream_t stream) {
    // 1,024 threads and all shared memory's worth of occupancy: a block fills its multiprocessor.
    persistent_copy_kernel<<<blocks, 1024, 0, stream>>>(static_cast<float4*>(to), static_cast<const float4*>(from),
                                                        bytes / sizeof(float4), stop, copied);
    check(cudaGetLastError(), "persistent copy");
}

void launch_empty(cudaStream_t stream) {
    empty_kernel<<<1, 32, 0, stream>>>();
    check(cudaGetLastError(), "empty kernel");
}

}  // namespace orrery::cudabench
