// Kernels that only move memory, and those that run beside others.

#include "tools/cudabench/bench.cuh"

#include <cstring>

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

// Stands in for a communication library's kernel: a few resident blocks that copy until told to stop. One thread of a block asks
// the host now and then, so that the bus carries next to nothing.
__global__ void persistent_copy_kernel(float4* to, const float4* from, std::size_t count, const volatile int* stop,
                                       unsigned long long* copied) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    const std::size_t first = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    constexpr int kChunk = 64;
    std::size_t i = first;
    unsigned long long chunks = 0;
    while (true) {
        for (int step = 0; step < kChunk; ++step) {
            to[i] = from[i];
            i = i + stride < count ? i + stride : first;
        }
        ++chunks;
        if (chunks == 1 && threadIdx.x == 0) {
            atomicAdd_system(copied, 1ULL);
        }
        if (__syncthreads_or(threadIdx.x == 0 ? *stop : 0) != 0) {
            if (threadIdx.x == 0) {
                atomicAdd_system(copied, chunks * kChunk * blockDim.x * sizeof(float4) - 1);
            }
            return;
        }
    }
}

__global__ void empty_kernel() {}

// Every load waits for the one before it: time per load is the latency.
__global__ void chase_kernel(unsigned* sink, const unsigned* next, int loads) {
    unsigned at = 0;
    for (int i = 0; i < loads; ++i) {
        at = next[at];
    }
    *sink = at;
}

// A ring through all lines of 128 B, in an order that no prefetch follows: steps of an odd stride near the golden section.
__global__ void ring_kernel(unsigned* next, unsigned lines, unsigned stride) {
    const unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += step) {
        next[i * 32] = (i + stride) % lines * 32;
    }
}

// Each block reads its shared memory `rounds` times.
__global__ void shared_kernel(float* sink, int floats, int rounds) {
    extern __shared__ float memory[];
    for (int i = threadIdx.x; i < floats; i += blockDim.x) {
        memory[i] = static_cast<float>(i);
    }
    __syncthreads();
    const auto* packs = reinterpret_cast<const float4*>(memory);
    float sum = 0;
    for (int round = 0; round < rounds; ++round) {
        for (int i = threadIdx.x; i < floats / 4; i += blockDim.x) {
            const float4 x = packs[(i + round) % (floats / 4)];
            sum += x.x + x.y + x.z + x.w;
        }
    }
    if (sum == 1.2345e30F) {
        *sink = sum;
    }
}

unsigned gcd(unsigned a, unsigned b) {
    return b == 0 ? a : gcd(b, a % b);
}

}  // namespace

Prepared prepare_memory(const Point& point, Arena& arena) {
    const double bytes = point.dim("bytes");
    const auto count = static_cast<std::size_t>(bytes) / sizeof(float4);
    const int arrays = point.op == "copy" ? 2 : point.op == "triad" ? 3 : 1;
    Prepared out;
    out.operand_bytes = arrays * bytes;
    out.copies = arena.copies_for(out.operand_bytes);
    std::vector<float4*> memory;
    for (int i = 0; i < out.copies * arrays; ++i) {
        memory.push_back(reinterpret_cast<float4*>(arena.normal<float>(bytes / sizeof(float))));
    }
    float* sink = static_cast<float*>(arena.take(sizeof(float)));
    const int blocks = arena.blocks_for(static_cast<double>(count), kThreads);
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
        check_spec(cudaGetLastError(), "memory kernel");
    };
    return out;
}

Prepared prepare_cache(const Point& point, Arena& arena) {
    const double bytes = point.dim("bytes");
    const int loads = static_cast<int>(point.dim("loads"));
    Prepared out;
    out.operand_bytes = bytes;
    out.warm = true;  // what is read stays where the point means it to be
    auto* memory = static_cast<float*>(arena.take(bytes));
    auto* sink = static_cast<float*>(arena.take(sizeof(float)));
    if (point.op == "pointer_chase") {
        const auto lines = static_cast<unsigned>(bytes / 128);
        unsigned stride = static_cast<unsigned>(0.618 * lines) | 1U;
        while (gcd(stride, lines) != 1) {
            stride += 2;
        }
        auto* next = reinterpret_cast<unsigned*>(memory);
        if (!arena.dry()) {
            ring_kernel<<<1024, kThreads>>>(next, lines, stride);
            check_spec(cudaGetLastError(), "ring of pointers");
        }
        out.launch = [=](int, cudaStream_t stream) {
            chase_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<unsigned*>(sink), next, loads);
            check_spec(cudaGetLastError(), "pointer chase");
        };
        out.note = "one thread; a load of each line of 128 B in turn";
        return out;
    }
    if (point.op == "shared_read") {
        const int floats = static_cast<int>(bytes / sizeof(float));
        const int blocks = arena.device().multiprocessors;
        out.launch = [=](int, cudaStream_t stream) {
            shared_kernel<<<blocks, 1024, static_cast<std::size_t>(floats) * sizeof(float), stream>>>(sink, floats,
                                                                                                      loads);
            check_spec(cudaGetLastError(), "shared memory");
        };
        out.note = "a block of 1024 threads on each multiprocessor; bytes of one, read loads times";
        return out;
    }
    const auto count = static_cast<std::size_t>(bytes) / sizeof(float4);
    const int blocks = arena.blocks_for(static_cast<double>(count), kThreads);
    const auto* packs = reinterpret_cast<const float4*>(arena.normal<float>(bytes / sizeof(float)));
    out.launch = [=](int, cudaStream_t stream) {
        for (int i = 0; i < loads; ++i) {
            read_kernel<<<blocks, kThreads, 0, stream>>>(sink, packs, count);
        }
        check_spec(cudaGetLastError(), "read from the L2 cache");
    };
    out.note = "loads reads of the same bytes, one kernel each";
    return out;
}

Prepared prepare_host_copy(const Point& point, Arena& arena) {
    const auto bytes = static_cast<std::size_t>(point.dim("bytes"));
    const bool both = point.op == "both_ways";
    char* device = static_cast<char*>(arena.take((both ? 2 : 1) * point.dim("bytes")));
    Prepared out;
    out.operand_bytes = static_cast<double>(bytes);
    out.capturable = false;
    out.library = "cuda-runtime";
    if (arena.dry()) {
        return out;
    }
    // Pinned memory, and for both ways a stream with its marks: freed with the last launch.
    struct Parts {
        void* host = nullptr;
        cudaStream_t side = nullptr;
        cudaEvent_t fork = nullptr, join = nullptr;
        ~Parts() {
            cudaFreeHost(host);
            if (side != nullptr) {
                cudaEventDestroy(fork);
                cudaEventDestroy(join);
                cudaStreamDestroy(side);
            }
        }
    };
    auto parts = std::make_shared<Parts>();
    check_spec(cudaMallocHost(&parts->host, (both ? 2 : 1) * bytes), "pinned host memory");
    std::memset(parts->host, 1, (both ? 2 : 1) * bytes);
    if (both) {
        check_spec(cudaStreamCreateWithFlags(&parts->side, cudaStreamNonBlocking), "second stream");
        check_spec(cudaEventCreateWithFlags(&parts->fork, cudaEventDisableTiming), "event");
        check_spec(cudaEventCreateWithFlags(&parts->join, cudaEventDisableTiming), "event");
    }
    Parts* p = parts.get();
    const bool up = point.op == "h2d";
    out.launch = [=](int, cudaStream_t stream) {
        if (!both) {
            check_spec(up ? cudaMemcpyAsync(device, p->host, bytes, cudaMemcpyHostToDevice, stream)
                     : cudaMemcpyAsync(p->host, device, bytes, cudaMemcpyDeviceToHost, stream),
                  "copy");
            return;
        }
        check_spec(cudaEventRecord(p->fork, stream), "event");
        check_spec(cudaStreamWaitEvent(p->side, p->fork, 0), "event");
        check_spec(cudaMemcpyAsync(device, p->host, bytes, cudaMemcpyHostToDevice, stream), "copy to the device");
        check_spec(cudaMemcpyAsync(static_cast<char*>(p->host) + bytes, device + bytes, bytes, cudaMemcpyDeviceToHost,
                              p->side),
              "copy to the host");
        check_spec(cudaEventRecord(p->join, p->side), "event");
        check_spec(cudaStreamWaitEvent(stream, p->join, 0), "event");
    };
    out.keep = parts;
    return out;
}

void launch_persistent_copy(void* to, const void* from, std::size_t bytes, int blocks, const int* stop,
                            unsigned long long* copied, cudaStream_t stream) {
    // All the shared memory that a block may have: no other block fits beside it, so each has a multiprocessor to itself.
    int device = 0;
    int shared = 0;
    check_spec(cudaGetDevice(&device), "cudaGetDevice");
    check_spec(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "shared memory");
    check_spec(cudaFuncSetAttribute(persistent_copy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory of the copy");
    persistent_copy_kernel<<<blocks, 1024, static_cast<std::size_t>(shared), stream>>>(
        static_cast<float4*>(to), static_cast<const float4*>(from), bytes / sizeof(float4), stop, copied);
    check_spec(cudaGetLastError(), "persistent copy");
}

void launch_empty(cudaStream_t stream) {
    empty_kernel<<<1, 32, 0, stream>>>();
    check_spec(cudaGetLastError(), "empty kernel");
}

}  // namespace orrery::cudabench
