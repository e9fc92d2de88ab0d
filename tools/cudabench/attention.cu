// Plain fused attention in bf16: a forward kernel in the manner of FlashAttention-2 and a decode kernel split over keys.
//
// Claims: scores never leave the chip; products run on tensor cores (mma m16n8k16), a warp owns 16 queries and keeps its
// output in registers; decoding splits the keys of a sequence over blocks and merges their parts in a second kernel.
// Limits: head dimensions 64 and 128; not the kernels of production libraries (asynchronous copies and warp
// specialisation are absent): those are measured by tools/torchbench.
// Sources: Dao, "FlashAttention-2", arXiv:2307.08691; PTX ISA, "Matrix fragments for mma.m16n8k16".

#include "tools/cudabench/bench.cuh"

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>

namespace orrery::cudabench {

namespace {

using Bf16 = __nv_bfloat16;

constexpr int kWarps = 4;
constexpr int kQueries = 16 * kWarps;  ///< a block
constexpr int kKeys = 64;              ///< a tile
constexpr int kMostGroup = 8;          ///< query heads that share a key head when decoding

__device__ unsigned pack(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&both);
}

__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct PrefillShape {
    int queries, keys, heads, kv_heads;
    bool causal;
    float scale;
};

// q: [batch][queries][heads][D], k and v: [batch][keys][kv_heads][D], out as q.
template <int D>
__global__ void __launch_bounds__(32 * kWarps)
    prefill_kernel(Bf16* out, const Bf16* q, const Bf16* k, const Bf16* v, PrefillShape s) {
    constexpr int kPitch = D + 8;  // a pitch off the banks' period
    __shared__ alignas(16) Bf16 key_tile[kKeys * kPitch];
    __shared__ alignas(16) Bf16 value_tile[kKeys * kPitch];
    const int head = static_cast<int>(blockIdx.y);
    const int batch = static_cast<int>(blockIdx.z);
    const int kv_head = head / (s.heads / s.kv_heads);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = lane / 4;
    const int column = lane % 4 * 2;
    // The longest blocks first: under a causal mask the last queries see most keys.
    const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries + warp * 16;
    const int before = s.keys - s.queries;

    unsigned query[D / 16][4];
    for (int step = 0; step < D / 16; ++step) {
        for (int part = 0; part < 4; ++part) {
            const int i = first_query + row + part % 2 * 8;
            const std::size_t place = ((static_cast<std::size_t>(batch) * s.queries + i) * s.heads + head) * D +
                                      step * 16 + column + part / 2 * 8;
            query[step][part] = i < s.queries ? *reinterpret_cast<const unsigned*>(&q[place]) : 0U;
        }
    }
    float output[D / 8][4] = {};
    float most[2] = {-3e38F, -3e38F};
    float sum[2] = {};
    const int last_query = static_cast<int>(gridDim.x - blockIdx.x) * kQueries - 1;
    const int end = s.causal ? min(s.keys, before + last_query + 1) : s.keys;

    for (int tile = 0; tile < end; tile += kKeys) {
        __syncthreads();
        constexpr int kPieces = D / 8;
        for (int i = static_cast<int>(threadIdx.x); i < kKeys * kPieces; i += 32 * kWarps) {
            const int key = i / kPieces;
            const int piece = i % kPieces * 8;
            const std::size_t place =
                ((static_cast<std::size_t>(batch) * s.keys + tile + key) * s.kv_heads + kv_head) * D + piece;
            const bool inside = tile + key < s.keys;
            const uint4 zero = make_uint4(0, 0, 0, 0);
            *reinterpret_cast<uint4*>(&key_tile[key * kPitch + piece]) =
                inside ? *reinterpret_cast<const uint4*>(&k[place]) : zero;
            *reinterpret_cast<uint4*>(&value_tile[key * kPitch + piece]) =
                inside ? *reinterpret_cast<const uint4*>(&v[place]) : zero;
        }
        __syncthreads();

        float score[kKeys / 8][4] = {};
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
#pragma unroll
            for (int n = 0; n < kKeys / 8; ++n) {
                const Bf16* at = &key_tile[(n * 8 + row) * kPitch + step * 16 + column];
                mma(score[n], query[step], *reinterpret_cast<const unsigned*>(at),
                    *reinterpret_cast<const unsigned*>(at + 8));
            }
        }
        const bool edge = tile + kKeys > s.keys || (s.causal && tile + kKeys > before + first_query + 1);
        float highest[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int key = tile + n * 8 + column + i % 2;
                const int seen = s.causal ? before + first_query + row + i / 2 * 8 : s.keys - 1;
                score[n][i] = edge && (key > seen || key >= s.keys) ? -3e38F : score[n][i] * s.scale;
                highest[i / 2] = fmaxf(highest[i / 2], score[n][i]);
            }
        }
        for (int half = 0; half < 2; ++half) {
            // The four lanes of a row agree on its maximum.
            highest[half] = fmaxf(highest[half], __shfl_xor_sync(0xffffffffU, highest[half], 1));
            highest[half] = fmaxf(highest[half], __shfl_xor_sync(0xffffffffU, highest[half], 2));
            const float shrink = __expf(most[half] - highest[half]);
            most[half] = highest[half];
            sum[half] *= shrink;
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                output[n][2 * half] *= shrink;
                output[n][2 * half + 1] *= shrink;
            }
        }
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                score[n][i] = __expf(score[n][i] - most[i / 2]);
                sum[i / 2] += score[n][i];
            }
        }
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step) {
            // The accumulator layout of two score tiles is the operand layout of one product.
            const unsigned weight[4] = {pack(score[2 * step][0], score[2 * step][1]),
                                        pack(score[2 * step][2], score[2 * step][3]),
                                        pack(score[2 * step + 1][0], score[2 * step + 1][1]),
                                        pack(score[2 * step + 1][2], score[2 * step + 1][3])};
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                unsigned b0 = 0;
                unsigned b1 = 0;
                const auto at = static_cast<unsigned>(
                    __cvta_generic_to_shared(&value_tile[(step * 16 + lane % 16) * kPitch + n * 8]));
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                             : "=r"(b0), "=r"(b1)
                             : "r"(at));
                mma(output[n], weight, b0, b1);
            }
        }
    }
    for (int half = 0; half < 2; ++half) {
        sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 1);
        sum[half] += __shfl_xor_sync(0xffffffffU, sum[half], 2);
        const int i = first_query + row + 8 * half;
        if (i < s.queries) {
            const std::size_t place = ((static_cast<std::size_t>(batch) * s.queries + i) * s.heads + head) * D + column;
            for (int n = 0; n < D / 8; ++n) {
                *reinterpret_cast<unsigned*>(&out[place + n * 8]) =
                    pack(output[n][2 * half] / sum[half], output[n][2 * half + 1] / sum[half]);
            }
        }
    }
}

struct DecodeShape {
    int keys, heads, kv_heads, splits;
    float scale;
};

// A block takes one split of the keys of one sequence and key head, its warps every fourth key; D = 128, four values a
// lane. part: [batch][kv_heads][splits][group][D + 2]: the unnormalised output, its maximum and its sum.
__global__ void decode_kernel(float* part, const Bf16* q, const Bf16* k, const Bf16* v, DecodeShape s) {
    constexpr int kD = 128;
    __shared__ float merged[kWarps][kMostGroup][kD + 2];
    const int group = s.heads / s.kv_heads;
    const int split = static_cast<int>(blockIdx.x);
    const int kv_head = static_cast<int>(blockIdx.y);
    const int batch = static_cast<int>(blockIdx.z);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const auto four = [](const Bf16* at) {
        const uint2 raw = *reinterpret_cast<const uint2*>(at);
        const float2 a = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
        const float2 b = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
        return make_float4(a.x, a.y, b.x, b.y);
    };
    float4 query[kMostGroup];
    float4 output[kMostGroup];
    float most[kMostGroup];
    float sum[kMostGroup];
#pragma unroll
    for (int g = 0; g < kMostGroup; ++g) {
        if (g < group) {
            query[g] = four(&q[(static_cast<std::size_t>(batch) * s.heads + kv_head * group + g) * kD + lane * 4]);
        }
        output[g] = make_float4(0, 0, 0, 0);
        most[g] = -3e38F;
        sum[g] = 0;
    }
    const int span = (s.keys + s.splits - 1) / s.splits;
    const int end = min(s.keys, (split + 1) * span);
    for (int key = split * span + warp; key < end; key += kWarps) {
        const std::size_t place =
            ((static_cast<std::size_t>(batch) * s.keys + key) * s.kv_heads + kv_head) * kD + lane * 4;
        const float4 x = four(&k[place]);
        const float4 y = four(&v[place]);
#pragma unroll
        for (int g = 0; g < kMostGroup; ++g) {
            if (g < group) {
                float score = query[g].x * x.x + query[g].y * x.y + query[g].z * x.z + query[g].w * x.w;
                for (int step = 16; step > 0; step /= 2) {
                    score += __shfl_xor_sync(0xffffffffU, score, step);
                }
                score *= s.scale;
                const float higher = fmaxf(most[g], score);
                const float shrink = __expf(most[g] - higher);
                const float weight = __expf(score - higher);
                most[g] = higher;
                sum[g] = sum[g] * shrink + weight;
                output[g].x = output[g].x * shrink + weight * y.x;
                output[g].y = output[g].y * shrink + weight * y.y;
                output[g].z = output[g].z * shrink + weight * y.z;
                output[g].w = output[g].w * shrink + weight * y.w;
            }
        }
    }
#pragma unroll
    for (int g = 0; g < kMostGroup; ++g) {
        if (g < group) {
            float* to = merged[warp][g];
            to[lane * 4] = output[g].x;
            to[lane * 4 + 1] = output[g].y;
            to[lane * 4 + 2] = output[g].z;
            to[lane * 4 + 3] = output[g].w;
            if (lane == 0) {
                to[kD] = most[g];
                to[kD + 1] = sum[g];
            }
        }
    }
    __syncthreads();
    for (int g = 0; g < group; ++g) {
        float highest = -3e38F;
        for (int w = 0; w < kWarps; ++w) {
            highest = fmaxf(highest, merged[w][g][kD]);
        }
        float value = 0;
        float total = 0;
        for (int w = 0; w < kWarps; ++w) {
            const float shrink = __expf(merged[w][g][kD] - highest);
            value += shrink * merged[w][g][threadIdx.x];
            total += shrink * merged[w][g][kD + 1];
        }
        float* to = part + (((static_cast<std::size_t>(batch) * s.kv_heads + kv_head) * s.splits + split) * group + g) *
                               (kD + 2);
        to[threadIdx.x] = value;
        if (threadIdx.x == 0) {
            to[kD] = highest;
            to[kD + 1] = total;
        }
    }
}

__global__ void merge_kernel(Bf16* out, const float* part, DecodeShape s) {
    constexpr int kD = 128;
    const int group = s.heads / s.kv_heads;
    const int head = static_cast<int>(blockIdx.x);
    const int batch = static_cast<int>(blockIdx.y);
    const float* from = part +
                        (static_cast<std::size_t>(batch) * s.kv_heads + head / group) * s.splits * group * (kD + 2) +
                        static_cast<std::size_t>(head % group) * (kD + 2);
    const std::size_t pitch = static_cast<std::size_t>(group) * (kD + 2);
    float highest = -3e38F;
    for (int i = 0; i < s.splits; ++i) {
        highest = fmaxf(highest, from[i * pitch + kD]);
    }
    float value = 0;
    float total = 0;
    for (int i = 0; i < s.splits; ++i) {
        const float shrink = __expf(from[i * pitch + kD] - highest);
        value += shrink * from[i * pitch + threadIdx.x];
        total += shrink * from[i * pitch + kD + 1];
    }
    out[(static_cast<std::size_t>(batch) * s.heads + head) * kD + threadIdx.x] = __float2bfloat16(value / total);
}

struct Operands {
    Bf16 *q, *k, *v, *out;
    float* part;
};

Operands take(Arena& arena, double q_count, double kv_count, double part_count) {
    return {arena.normal<Bf16>(q_count), arena.normal<Bf16>(kv_count), arena.normal<Bf16>(kv_count),
            static_cast<Bf16*>(arena.take(2 * q_count)),
            part_count > 0 ? static_cast<float*>(arena.take(4 * part_count)) : nullptr};
}

}  // namespace

Prepared prepare_attention(const Point& point, Arena& arena) {
    const int batch = static_cast<int>(point.dim("batch"));
    const int queries = static_cast<int>(point.dim("queries", 1));
    const int keys = static_cast<int>(point.dim("keys"));
    const int heads = static_cast<int>(point.dim("heads"));
    const int kv_heads = static_cast<int>(point.dim("kv_heads"));
    const int width = static_cast<int>(point.dim("head_dim"));
    const float scale = 1.0F / std::sqrt(static_cast<float>(width));
    const double q_count = static_cast<double>(batch) * queries * heads * width;
    const double kv_count = static_cast<double>(batch) * keys * kv_heads * width;
    Prepared out;
    out.operand_bytes = 4 * q_count + 4 * kv_count;
    out.copies = arena.copies_for(out.operand_bytes);
    std::vector<Operands> sets;
    if (point.op == "attention_prefill") {
        if (width != 64 && width != 128) {
            throw NotMeasurable("head dimension other than 64 and 128");
        }
        for (int i = 0; i < out.copies; ++i) {
            sets.push_back(take(arena, q_count, kv_count, 0));
        }
        const PrefillShape shape{queries, keys, heads, kv_heads, point.dim("causal") > 0, scale};
        const dim3 grid(static_cast<unsigned>((queries + kQueries - 1) / kQueries), static_cast<unsigned>(heads),
                        static_cast<unsigned>(batch));
        out.launch = [=](int copy, cudaStream_t stream) {
            const Operands& o = sets[static_cast<std::size_t>(copy)];
            if (width == 64) {
                prefill_kernel<64><<<grid, 32 * kWarps, 0, stream>>>(o.out, o.q, o.k, o.v, shape);
            } else {
                prefill_kernel<128><<<grid, 32 * kWarps, 0, stream>>>(o.out, o.q, o.k, o.v, shape);
            }
            check_spec(cudaGetLastError(), "attention");
        };
        return out;
    }
    const int group = heads / kv_heads;
    if (width != 128 || group > kMostGroup) {
        throw NotMeasurable("decoding of head dimension other than 128, or of more than 8 heads a key head");
    }
    // Enough blocks for two waves, but at least 64 keys each.
    const int wanted = 2 * arena.device().multiprocessors;
    const int splits = std::max(1, std::min((wanted + batch * kv_heads - 1) / (batch * kv_heads), keys / 64));
    for (int i = 0; i < out.copies; ++i) {
        sets.push_back(take(arena, q_count, kv_count, static_cast<double>(batch) * heads * splits * (width + 2)));
    }
    const DecodeShape shape{keys, heads, kv_heads, splits, scale};
    const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(kv_heads), static_cast<unsigned>(batch));
    const dim3 merge(static_cast<unsigned>(heads), static_cast<unsigned>(batch));
    out.launch = [=](int copy, cudaStream_t stream) {
        const Operands& o = sets[static_cast<std::size_t>(copy)];
        decode_kernel<<<grid, 32 * kWarps, 0, stream>>>(o.part, o.q, o.k, o.v, shape);
        merge_kernel<<<merge, 128, 0, stream>>>(o.out, o.part, shape);
        check_spec(cudaGetLastError(), "decoding");
    };
    return out;
}

}  // namespace orrery::cudabench
