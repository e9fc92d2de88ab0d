// Elementwise and row-wise kernels of a transformer, one pass over memory each, in bf16 with fp32 arithmetic.
//
// Limits: plain kernels of this program, not those of a framework; they show what the memory system gives such kernels.

#include "tools/cudabench/bench.cuh"

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <algorithm>

namespace orrery::cudabench {

namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = 256;
constexpr int kVector = 8;  ///< bf16 values in 16 bytes

struct alignas(16) Pack {
    Bf16 value[kVector];
};

__device__ float block_sum(float value) {
    __shared__ float partial[32];
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, step);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0F;
    for (int step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(0xffffffffU, value, step);
    }
    if (threadIdx.x == 0) {
        partial[0] = value;
    }
    __syncthreads();
    return partial[0];
}

__device__ float block_max(float value) {
    __shared__ float partial[32];
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, step));
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = partial[threadIdx.x % (blockDim.x / 32)];
    for (int step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, step));
    }
    return value;
}

// y = f(a, b) value by value.
template <typename F>
__global__ void map_kernel(Pack* out, const Pack* a, const Pack* b, std::size_t packs, F f) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
        const Pack x = a[i];
        const Pack y = b[i];
        Pack z;
        for (int j = 0; j < kVector; ++j) {
            z.value[j] = __float2bfloat16(
                f(__bfloat162float(x.value[j]), __bfloat162float(y.value[j]), i * kVector + static_cast<unsigned>(j)));
        }
        out[i] = z;
    }
}

// One row a block, held in registers between the reduction and the write: up to 8,192 columns.
constexpr int kPacksAThread = 4;

template <typename Reduce, typename Write>
__global__ void row_kernel(Pack* out, const Pack* in, const Pack* other, int packs, Reduce reduce, Write write) {
    const Pack* row = in + static_cast<std::size_t>(blockIdx.x) * packs;
    const Pack* second = other + static_cast<std::size_t>(blockIdx.x) * packs;
    Pack mine[kPacksAThread];
    Pack also[kPacksAThread];
    // Loops of constant length, so that the packs stay in registers.
    const int held = (packs - static_cast<int>(threadIdx.x) + kThreads - 1) / kThreads;
#pragma unroll
    for (int h = 0; h < kPacksAThread; ++h) {
        if (h < held) {
            mine[h] = row[threadIdx.x + h * kThreads];
            also[h] = second[threadIdx.x + h * kThreads];
        }
    }
    const auto stats = reduce(mine, also, held);
#pragma unroll
    for (int h = 0; h < kPacksAThread; ++h) {
        if (h < held) {
            Pack z;
            for (int j = 0; j < kVector; ++j) {
                z.value[j] = __float2bfloat16(
                    write(__bfloat162float(mine[h].value[j]), __bfloat162float(also[h].value[j]), stats));
            }
            out[static_cast<std::size_t>(blockIdx.x) * packs + threadIdx.x + h * kThreads] = z;
        }
    }
}

// Calls f(value, other value) for everything that a thread holds.
template <typename F>
__device__ void for_each(const Pack* p, const Pack* other, int held, F f) {
#pragma unroll
    for (int h = 0; h < kPacksAThread; ++h) {
        if (h < held) {
            for (int j = 0; j < kVector; ++j) {
                f(__bfloat162float(p[h].value[j]), __bfloat162float(other[h].value[j]));
            }
        }
    }
}

struct RmsReduce {
    int columns;
    __device__ float operator()(const Pack* p, const Pack* other, int held) const {
        float squares = 0;
        for_each(p, other, held, [&](float x, float) { squares += x * x; });
        return rsqrtf(block_sum(squares) / static_cast<float>(columns) + 1e-5F);
    }
};
struct RmsWrite {
    __device__ float operator()(float x, float, float scale) const { return x * scale; }
};
struct LayerReduce {
    int columns;
    __device__ float2 operator()(const Pack* p, const Pack* other, int held) const {
        float sum = 0;
        float squares = 0;
        for_each(p, other, held, [&](float x, float) {
            sum += x;
            squares += x * x;
        });
        const float mean = block_sum(sum) / static_cast<float>(columns);
        return make_float2(mean, rsqrtf(block_sum(squares) / static_cast<float>(columns) - mean * mean + 1e-5F));
    }
};
struct LayerWrite {
    __device__ float operator()(float x, float, float2 s) const { return (x - s.x) * s.y; }
};
struct LayerBackReduce {
    int columns;
    __device__ float4 operator()(const Pack* p, const Pack* gradients, int held) const {
        const float2 s = LayerReduce{columns}(p, gradients, held);
        float sum = 0;
        float product = 0;
        for_each(p, gradients, held, [&](float x, float gradient) {
            sum += gradient;
            product += gradient * (x - s.x) * s.y;
        });
        sum = block_sum(sum) / static_cast<float>(columns);
        return make_float4(s.x, s.y, sum, block_sum(product) / static_cast<float>(columns));
    }
};
struct LayerBackWrite {
    __device__ float operator()(float x, float gradient, float4 s) const {
        return s.y * (gradient - s.z - (x - s.x) * s.y * s.w);
    }
};
struct SoftmaxReduce {
    __device__ float2 operator()(const Pack* p, const Pack* other, int held) const {
        float most = -3e38F;
        for_each(p, other, held, [&](float x, float) { most = fmaxf(most, x); });
        most = block_max(most);
        float sum = 0;
        for_each(p, other, held, [&](float x, float) { sum += __expf(x - most); });
        return make_float2(most, 1.0F / block_sum(sum));
    }
};
struct SoftmaxWrite {
    __device__ float operator()(float x, float, float2 s) const { return __expf(x - s.x) * s.y; }
};

struct Add {
    __device__ float operator()(float x, float y, std::size_t) const { return x + y; }
};
struct DropoutAdd {
    __device__ float operator()(float x, float y, std::size_t i) const {
        const auto key = static_cast<unsigned>(i) * 2654435761U;
        return y + ((key >> 16U) % 10 == 0 ? 0.0F : x * (1.0F / 0.9F));
    }
};
struct SiluMul {
    __device__ float operator()(float x, float y, std::size_t) const { return x / (1.0F + __expf(-x)) * y; }
};
struct Gelu {
    __device__ float operator()(float x, float, std::size_t) const {
        return 0.5F * x * (1.0F + tanhf(0.79788456F * (x + 0.044715F * x * x * x)));
    }
};
struct GeluBack {
    __device__ float operator()(float x, float gradient, std::size_t) const {
        const float t = tanhf(0.79788456F * (x + 0.044715F * x * x * x));
        const float slope = 0.79788456F * (1.0F + 3.0F * 0.044715F * x * x);
        return gradient * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope);
    }
};

__global__ void gelu_kernel(Pack* out, const Pack* in, std::size_t packs) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < packs; i += stride) {
        Pack x = in[i];
        for (int j = 0; j < kVector; ++j) {
            x.value[j] = __float2bfloat16(Gelu{}(__bfloat162float(x.value[j]), 0, 0));
        }
        out[i] = x;
    }
}

__global__ void rotary_kernel(Pack* data, const float2* angles, int packs, int head_packs) {
    const std::size_t row = static_cast<std::size_t>(blockIdx.x) * packs;
    for (int i = static_cast<int>(threadIdx.x); i < packs / 2; i += kThreads) {
        // The first half of a head turns with its second half.
        const int head = i / (head_packs / 2);
        const int place = i % (head_packs / 2);
        Pack& low = data[row + static_cast<std::size_t>(head * head_packs + place)];
        Pack& high = data[row + static_cast<std::size_t>(head * head_packs + place + head_packs / 2)];
        Pack x = low;
        Pack y = high;
        for (int j = 0; j < kVector; ++j) {
            const float2 turn = angles[place * kVector + j];
            const float a = __bfloat162float(x.value[j]);
            const float b = __bfloat162float(y.value[j]);
            x.value[j] = __float2bfloat16(a * turn.x - b * turn.y);
            y.value[j] = __float2bfloat16(a * turn.y + b * turn.x);
        }
        low = x;
        high = y;
    }
}

__global__ void quantize_kernel(__nv_fp8_e4m3* out, float* scales, const Pack* in, int packs) {
    const Pack* row = in + static_cast<std::size_t>(blockIdx.x) * packs;
    float most = 1e-6F;
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        const Pack x = row[i];
        for (int j = 0; j < kVector; ++j) {
            most = fmaxf(most, fabsf(__bfloat162float(x.value[j])));
        }
    }
    most = block_max(most);
    const float scale = 448.0F / most;
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        const Pack x = row[i];
        union {
            __nv_fp8_storage_t value[kVector];
            uint2 word;
        } z;
        for (int j = 0; j < kVector; ++j) {
            z.value[j] = __nv_cvt_float_to_fp8(__bfloat162float(x.value[j]) * scale, __NV_SATFINITE, __NV_E4M3);
        }
        reinterpret_cast<uint2*>(out)[static_cast<std::size_t>(blockIdx.x) * packs + i] = z.word;
    }
    if (threadIdx.x == 0) {
        scales[blockIdx.x] = 1.0F / scale;
    }
}

// Loss and gradient of a row of logits, in place: two reads, one write.
__global__ void cross_entropy_kernel(Pack* logits, const int* labels, float* losses, int packs) {
    Pack* row = logits + static_cast<std::size_t>(blockIdx.x) * packs;
    float most = -3e38F;
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        const Pack x = row[i];
        for (int j = 0; j < kVector; ++j) {
            const float v = __bfloat162float(x.value[j]);
            const float higher = fmaxf(most, v);
            sum = sum * __expf(most - higher) + __expf(v - higher);
            most = higher;
        }
    }
    const float all = block_max(most);
    sum = block_sum(sum * __expf(most - all));
    const int label = labels[blockIdx.x];
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = logf(sum) + all - __bfloat162float(row[label / kVector].value[label % kVector]);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        Pack x = row[i];
        for (int j = 0; j < kVector; ++j) {
            const float p = __expf(__bfloat162float(x.value[j]) - all) / sum;
            x.value[j] = __float2bfloat16(p - (i * kVector + j == label ? 1.0F : 0.0F));
        }
        row[i] = x;
    }
}

__global__ void embedding_kernel(Pack* out, const Pack* table, const int* tokens, int packs) {
    const Pack* row = table + static_cast<std::size_t>(tokens[blockIdx.x]) * packs;
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        out[static_cast<std::size_t>(blockIdx.x) * packs + i] = row[i];
    }
}

__global__ void adamw_kernel(float4* p, const float4* g, float4* m, float4* v, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        float4 weight = p[i];
        float4 first = m[i];
        float4 second = v[i];
        const float4 gradient = g[i];
        const auto step = [](float& w, float& a, float& b, float x) {
            a = 0.9F * a + 0.1F * x;
            b = 0.95F * b + 0.05F * x * x;
            w -= 1e-4F * (a / (sqrtf(fabsf(b)) + 1e-8F) + 0.1F * w);
        };
        step(weight.x, first.x, second.x, gradient.x);
        step(weight.y, first.y, second.y, gradient.y);
        step(weight.z, first.z, second.z, gradient.z);
        step(weight.w, first.w, second.w, gradient.w);
        p[i] = weight;
        m[i] = first;
        v[i] = second;
    }
}

__global__ void norm_kernel(float* sum, const float4* g, std::size_t count) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    float mine = 0;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        const float4 x = g[i];
        mine += x.x * x.x + x.y * x.y + x.z * x.z + x.w * x.w;
    }
    mine = block_sum(mine);
    if (threadIdx.x == 0) {
        atomicAdd(sum, mine);
    }
}

__global__ void scale_kernel(float4* g, const float* sum, std::size_t count) {
    const float scale = fminf(1.0F, 1.0F / (sqrtf(*sum) + 1e-6F));
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
    for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
        float4 x = g[i];
        x.x *= scale;
        x.y *= scale;
        x.z *= scale;
        x.w *= scale;
        g[i] = x;
    }
}

// Top-k gates of a token and the place of its copies among their experts' rows, then the copies: a block a token.
__global__ void route_kernel(Pack* rows, const Pack* tokens, const float* gates, int* counters, int packs, int experts,
                             int topk, int capacity) {
    __shared__ int target[16];
    if (threadIdx.x == 0) {
        const float* mine = gates + static_cast<std::size_t>(blockIdx.x) * experts;
        unsigned long long taken[4] = {};
        for (int t = 0; t < topk; ++t) {
            int best = 0;
            float most = -3e38F;
            for (int e = 0; e < experts; ++e) {
                if (mine[e] > most && (taken[e / 64] >> (e % 64) & 1ULL) == 0) {
                    most = mine[e];
                    best = e;
                }
            }
            taken[best / 64] |= 1ULL << (best % 64);
            target[t] = best * capacity + atomicAdd(&counters[best], 1) % capacity;
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
        const Pack x = tokens[static_cast<std::size_t>(blockIdx.x) * packs + i];
        for (int t = 0; t < topk; ++t) {
            rows[static_cast<std::size_t>(target[t]) * packs + i] = x;
        }
    }
}

template <typename T>
T* packs(Arena& arena, double values) {
    return reinterpret_cast<T*>(arena.normal<Bf16>(values));
}

}  // namespace

Prepared prepare_moe_route(const Point& point, Arena& arena) {
    const double tokens = point.dim("tokens");
    const double hidden = point.dim("hidden");
    const int experts = static_cast<int>(point.dim("experts"));
    const int topk = static_cast<int>(point.dim("topk"));
    const int capacity = static_cast<int>(2 * tokens * topk / experts) + 1;
    Prepared out;
    out.operand_bytes = 2 * tokens * hidden * (1 + topk) + 4 * tokens * experts;
    out.copies = arena.copies_for(out.operand_bytes);
    struct Set {
        Pack *rows, *tokens;
        float* gates;
        int* counters;
    };
    std::vector<Set> sets;
    for (int i = 0; i < out.copies; ++i) {
        sets.push_back({static_cast<Pack*>(arena.take(2.0 * experts * capacity * hidden)),
                        packs<Pack>(arena, tokens * hidden), arena.normal<float>(tokens * experts),
                        arena.indices(experts, 1)});
    }
    const int width = static_cast<int>(hidden) / kVector;
    const int blocks = static_cast<int>(tokens);
    out.launch = [=](int copy, cudaStream_t stream) {
        const Set& s = sets[static_cast<std::size_t>(copy)];
        route_kernel<<<blocks, kThreads, 0, stream>>>(s.rows, s.tokens, s.gates, s.counters, width, experts, topk,
                                                      capacity);
        check_spec(cudaGetLastError(), "routing");
    };
    return out;
}

Prepared prepare_elementwise(const Point& point, Arena& arena) {
    const std::string key = point.op + (point.phase.empty() ? "" : " " + point.phase);
    const double tokens = point.dim("tokens");
    const double hidden = point.dim("hidden");
    Prepared out;
    struct Set {
        Pack *out, *a, *b;
        int* index;
        float *f, *g, *m, *v;
    };
    std::vector<Set> sets;
    // Allocates `copies` sets of what `make` takes from the arena.
    const auto allocate = [&](double operand_bytes, const auto& make) {
        out.operand_bytes = operand_bytes;
        out.copies = arena.copies_for(operand_bytes);
        for (int i = 0; i < out.copies; ++i) {
            sets.push_back(make());
        }
    };
    const auto finish = [&](auto kernel) {
        out.launch = [sets, kernel](int copy, cudaStream_t stream) {
            kernel(sets[static_cast<std::size_t>(copy)], stream);
            check_spec(cudaGetLastError(), "elementwise kernel");
        };
        return out;
    };
    if (point.op == "adamw" || point.op == "grad_norm") {
        const double params = point.dim("params");
        const auto count = static_cast<std::size_t>(params) / 4;
        const bool adam = point.op == "adamw";
        allocate((adam ? 16 : 4) * params, [&] {
            Set s{};
            s.g = arena.normal<float>(params);
            s.v = static_cast<float*>(arena.take(sizeof(float)));
            if (adam) {
                s.f = arena.normal<float>(params);
                s.m = arena.normal<float>(params);
                s.v = arena.normal<float>(params);
            }
            return s;
        });
        const int blocks = arena.blocks_for(params / 4, kThreads);
        const auto as = [](float* p) { return reinterpret_cast<float4*>(p); };
        if (adam) {
            return finish([=](const Set& s, cudaStream_t stream) {
                adamw_kernel<<<blocks, kThreads, 0, stream>>>(as(s.f), as(s.g), as(s.m), as(s.v), count);
            });
        }
        out.note = "two kernels: norm and scaling";
        return finish([=](const Set& s, cudaStream_t stream) {
            check_spec(cudaMemsetAsync(s.v, 0, sizeof(float), stream), "sum");
            norm_kernel<<<blocks, kThreads, 0, stream>>>(s.v, as(s.g), count);
            scale_kernel<<<blocks, kThreads, 0, stream>>>(as(s.g), s.v, count);
        });
    }
    const int rows = static_cast<int>(tokens);
    if (point.op == "cross_entropy") {
        const double vocabulary = point.dim("vocabulary");
        allocate(2 * tokens * vocabulary, [&] {
            Set s{};
            s.a = packs<Pack>(arena, tokens * vocabulary);
            s.index = arena.indices(tokens, static_cast<int>(vocabulary));
            s.f = static_cast<float*>(arena.take(4 * tokens));
            return s;
        });
        const int width = static_cast<int>(vocabulary) / kVector;
        return finish([=](const Set& s, cudaStream_t stream) {
            cross_entropy_kernel<<<rows, kThreads, 0, stream>>>(s.a, s.index, s.f, width);
        });
    }
    const int width = static_cast<int>(hidden) / kVector;
    if (point.op == "embedding") {
        const double vocabulary = point.dim("vocabulary");
        Pack* table = packs<Pack>(arena, vocabulary * hidden);
        allocate(4 * tokens * hidden, [&] {
            Set s{};
            s.a = table;
            s.out = static_cast<Pack*>(arena.take(2 * tokens * hidden));
            s.index = arena.indices(tokens, static_cast<int>(vocabulary));
            return s;
        });
        return finish([=](const Set& s, cudaStream_t stream) {
            embedding_kernel<<<rows, kThreads, 0, stream>>>(s.out, s.a, s.index, width);
        });
    }
    if (point.op == "quantize") {
        allocate(3 * tokens * hidden, [&] {
            Set s{};
            s.a = packs<Pack>(arena, tokens * hidden);
            s.out = static_cast<Pack*>(arena.take(tokens * hidden));
            s.f = static_cast<float*>(arena.take(4 * tokens));
            return s;
        });
        return finish([=](const Set& s, cudaStream_t stream) {
            quantize_kernel<<<rows, kThreads, 0, stream>>>(reinterpret_cast<__nv_fp8_e4m3*>(s.out), s.f, s.a, width);
        });
    }
    if (point.op == "rotary") {
        constexpr int kHeadPacks = 128 / kVector;
        float* angles = arena.normal<float>(128);
        allocate(2 * tokens * hidden, [&] {
            Set s{};
            s.a = packs<Pack>(arena, tokens * hidden);
            return s;
        });
        return finish([=](const Set& s, cudaStream_t stream) {
            rotary_kernel<<<rows, kThreads, 0, stream>>>(s.a, reinterpret_cast<const float2*>(angles), width,
                                                         kHeadPacks);
        });
    }
    const bool two_inputs = key == "silu_mul" || key == "add" || key == "dropout_add" || !point.phase.empty();
    allocate((two_inputs ? 6 : 4) * tokens * hidden, [&] {
        Set s{};
        s.a = packs<Pack>(arena, tokens * hidden);
        s.b = two_inputs ? packs<Pack>(arena, tokens * hidden) : s.a;
        s.out = static_cast<Pack*>(arena.take(2 * tokens * hidden));
        return s;
    });
    const auto count = static_cast<std::size_t>(tokens * hidden) / kVector;
    const int blocks = arena.blocks_for(static_cast<double>(count), kThreads);
    const int columns = static_cast<int>(hidden);
    const auto map = [&](auto f) {
        return finish([=](const Set& s, cudaStream_t stream) {
            map_kernel<<<blocks, kThreads, 0, stream>>>(s.out, s.a, s.b, count, f);
        });
    };
    const auto by_row = [&](auto reduce, auto write) {
        if (width > kThreads * kPacksAThread) {
            throw NotMeasurable("rows of more than 8,192 columns");
        }
        return finish([=](const Set& s, cudaStream_t stream) {
            row_kernel<<<rows, kThreads, 0, stream>>>(s.out, s.a, s.b, width, reduce, write);
        });
    };
    if (key == "rms_norm") {
        return by_row(RmsReduce{columns}, RmsWrite{});
    }
    if (key == "layer_norm") {
        return by_row(LayerReduce{columns}, LayerWrite{});
    }
    if (key == "layer_norm backward") {
        return by_row(LayerBackReduce{columns}, LayerBackWrite{});
    }
    if (key == "softmax") {
        return by_row(SoftmaxReduce{}, SoftmaxWrite{});
    }
    if (key == "silu_mul") {
        return map(SiluMul{});
    }
    if (key == "add") {
        return map(Add{});
    }
    if (key == "dropout_add") {
        return map(DropoutAdd{});
    }
    if (key == "gelu backward") {
        return map(GeluBack{});
    }
    if (key == "gelu") {
        return finish([=](const Set& s, cudaStream_t stream) {
            gelu_kernel<<<blocks, kThreads, 0, stream>>>(s.out, s.a, count);
        });
    }
    throw NotMeasurable("no kernel for " + key);
}

}  // namespace orrery::cudabench
