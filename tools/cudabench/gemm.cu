// Matrix products through cuBLASLt, grouped ones through cuBLAS.
//
// Row-major C = A B is column-major C^T = B^T A^T, so the library's first operand is our B. Layout letters say how A and B
// lie in memory: `n` row-major as named, `t` transposed. The heuristic's first algorithm is taken, with 32 MiB workspace.

#include "tools/cudabench/bench.cuh"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cstdint>

namespace orrery::cudabench {

namespace {

constexpr std::size_t kWorkspace = 32U << 20U;

void check_blas(cublasStatus_t status, const char* what) {
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        throw NotMeasurable(std::string(what) + ": the library has no kernel for it");
    }
    if (status != CUBLAS_STATUS_SUCCESS) {
        throw DeviceError(std::string(what) + ": " + cublasGetStatusString(status));
    }
}

struct Format {
    cudaDataType_t operand, result;
    cublasComputeType_t compute;
    cudaDataType_t scale;
    double operand_bytes, result_bytes;
};

Format format_of(const std::string& dtype) {
    if (dtype == "bf16") {
        return {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F, 2, 2};
    }
    if (dtype == "fp16") {
        return {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F, 2, 2};
    }
    if (dtype == "tf32") {
        return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, 4, 4};
    }
    if (dtype == "fp8") {
        return {CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F, 1, 2};
    }
    if (dtype == "int8") {
        return {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I, 1, 4};
    }
    throw NotMeasurable("no matrix product of dtype " + dtype);
}

void* operand(Arena& arena, const std::string& dtype, double count) {
    if (dtype == "bf16") {
        return arena.normal<__nv_bfloat16>(count);
    }
    if (dtype == "fp16") {
        return arena.normal<__half>(count);
    }
    if (dtype == "fp8") {
        return arena.normal<__nv_fp8_e4m3>(count);
    }
    if (dtype == "int8") {
        return arena.normal<signed char>(count, 32.0F);
    }
    return arena.normal<float>(count);
}

std::string library_version() {
    const std::size_t version = cublasLtGetVersion();
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
}

// Everything that a launch needs, freed with the last launch.
struct Product {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    std::vector<void*> a, b, c;
    void* workspace = nullptr;
    float alpha = 1, beta = 0;
    int alpha_int = 1, beta_int = 0;

    Product() = default;
    Product(const Product&) = delete;
    Product& operator=(const Product&) = delete;
    ~Product() {
        if (handle != nullptr) {
            cublasLtMatrixLayoutDestroy(first);
            cublasLtMatrixLayoutDestroy(second);
            cublasLtMatrixLayoutDestroy(result);
            cublasLtMatmulDescDestroy(operation);
            cublasLtDestroy(handle);
        }
    }
};

struct Grouped {
    cublasHandle_t handle = nullptr;
    std::vector<cublasOperation_t> first_op, second_op;
    std::vector<int> m, n, k, lda, ldb, ldc, size;
    std::vector<float> alpha, beta;
    std::vector<void**> a, b, c;  ///< device arrays of pointers, by copy

    Grouped() = default;
    Grouped(const Grouped&) = delete;
    Grouped& operator=(const Grouped&) = delete;
    ~Grouped() {
        if (handle != nullptr) {
            cublasDestroy(handle);
        }
    }
};

void** device_pointers(Arena& arena, const std::vector<void*>& pointers) {
    void** out = static_cast<void**>(arena.take(static_cast<double>(pointers.size() * sizeof(void*))));
    if (!arena.dry()) {
        check_spec(cudaMemcpy(out, pointers.data(), pointers.size() * sizeof(void*), cudaMemcpyHostToDevice), "pointers");
    }
    return out;
}

}  // namespace

Prepared prepare_gemm(const Point& point, Arena& arena) {
    const double m = point.dim("m");
    const double n = point.dim("n");
    const double k = point.dim("k");
    Format format = format_of(point.dtype);
    const bool accumulates = point.dim("accumulate") > 0;
    const bool wide = accumulates && point.dim("accumulate") != 16;
    if (wide) {
        // As gradients of weights are summed over micro-batches: into 32-bit sums that are there already.
        format.result = CUDA_R_32F;
        format.result_bytes = 4;
    }
    const bool a_transposed = point.layout[0] == 't';
    const bool b_transposed = point.layout[1] == 't';

    auto product = std::make_shared<Product>();
    product->beta = accumulates ? 1 : 0;
    Prepared out;
    out.operand_bytes = (m * k + k * n) * format.operand_bytes + m * n * format.result_bytes;
    out.copies = arena.copies_for(out.operand_bytes);
    for (int i = 0; i < out.copies; ++i) {
        product->a.push_back(operand(arena, point.dtype, m * k));
        product->b.push_back(operand(arena, point.dtype, k * n));
        product->c.push_back(wide          ? arena.normal<float>(m * n)
                             : accumulates ? operand(arena, point.dtype, m * n)
                                           : arena.take(m * n * format.result_bytes));
    }
    product->workspace = arena.take(kWorkspace);
    float* scale = static_cast<float*>(arena.take(sizeof(float)));
    if (arena.dry()) {
        return out;
    }
    check_blas(cublasLtCreate(&product->handle), "cublasLtCreate");
    check_blas(cublasLtMatmulDescCreate(&product->operation, format.compute, format.scale), "operation");
    const cublasOperation_t first_op = b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second_op = a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
        check_blas(cublasLtMatmulDescSetAttribute(product->operation, attribute, &value, sizeof value), "attribute");
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, first_op);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second_op);
    if (point.dtype == "fp8") {
        const float one = 1;
        check_spec(cudaMemcpy(scale, &one, sizeof one, cudaMemcpyHostToDevice), "scale");
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale);
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale);
        // As serving engines and Transformer Engine's forward pass set it: sums stay in the tensor core's registers. Its
        // products of gradients promote them to 32 bits along the way (split_accumulator).
        const std::int8_t fast = point.dim("split_accumulator") > 0 ? 0 : 1;
        set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
    }
    const auto rows = [](double value) { return static_cast<std::uint64_t>(value); };
    const auto layout = [&](cublasLtMatrixLayout_t& out, cudaDataType_t type, double height, double width) {
        check_blas(cublasLtMatrixLayoutCreate(&out, type, rows(height), rows(width), static_cast<std::int64_t>(height)),
                   "layout");
    };
    layout(product->first, format.operand, b_transposed ? k : n, b_transposed ? n : k);
    layout(product->second, format.operand, a_transposed ? m : k, a_transposed ? k : m);
    layout(product->result, format.result, n, m);

    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
    const std::size_t workspace = kWorkspace;
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                         sizeof workspace);
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(product->handle, product->operation, product->first, product->second,
                                       product->result, product->result, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    check_blas(status, "choice of a kernel");
    if (count == 0) {
        throw NotMeasurable("the library has no kernel for it");
    }
    product->algorithm = found.algo;

    const bool integer = point.dtype == "int8";
    Product* p = product.get();
    out.launch = [p, integer](int copy, cudaStream_t stream) {
        const void* alpha = integer ? static_cast<const void*>(&p->alpha_int) : &p->alpha;
        const void* beta = integer ? static_cast<const void*>(&p->beta_int) : &p->beta;
        const auto i = static_cast<std::size_t>(copy);
        check_blas(cublasLtMatmul(p->handle, p->operation, alpha, p->b[i], p->first, p->a[i], p->second, beta, p->c[i],
                                  p->result, p->c[i], p->result, &p->algorithm, p->workspace, kWorkspace, stream),
                   "cublasLtMatmul");
    };
    out.library = "cublaslt-" + library_version();
    out.keep = product;
    return out;
}

Prepared prepare_grouped_gemm(const Point& point, Arena& arena) {
    const int experts = static_cast<int>(point.dim("experts"));
    const int rows = static_cast<int>(point.dim("tokens") * point.dim("topk"));
    const int n = static_cast<int>(point.dim("n"));
    const int k = static_cast<int>(point.dim("k"));
    auto group = std::make_shared<Grouped>();
    Prepared out;
    const double active = std::min(experts, rows);
    out.operand_bytes = 2.0 * (static_cast<double>(rows) * (n + k) + active * n * k);
    out.copies = arena.copies_for(out.operand_bytes);
    for (int copy = 0; copy < out.copies; ++copy) {
        auto* a = arena.normal<__nv_bfloat16>(static_cast<double>(rows) * k);
        auto* b = arena.normal<__nv_bfloat16>(static_cast<double>(experts) * n * k);
        auto* c = static_cast<__nv_bfloat16*>(arena.take(2.0 * rows * n));
        std::vector<void*> as;
        std::vector<void*> bs;
        std::vector<void*> cs;
        std::ptrdiff_t row = 0;
        for (int e = 0; e < experts; ++e) {
            // Balanced routing; the first experts take what does not divide.
            const int mine = rows / experts + (e < rows % experts ? 1 : 0);
            if (mine == 0) {
                continue;
            }
            as.push_back(a + row * k);
            bs.push_back(b + static_cast<std::ptrdiff_t>(e) * n * k);
            cs.push_back(c + row * n);
            row += mine;
            if (copy == 0) {
                group->m.push_back(n);
                group->n.push_back(mine);
            }
        }
        group->a.push_back(device_pointers(arena, as));
        group->b.push_back(device_pointers(arena, bs));
        group->c.push_back(device_pointers(arena, cs));
    }
    if (arena.dry()) {
        return out;
    }
    check_blas(cublasCreate(&group->handle), "cublasCreate");
    const std::size_t groups = group->m.size();
    group->first_op.assign(groups, CUBLAS_OP_T);
    group->second_op.assign(groups, CUBLAS_OP_N);
    group->k.assign(groups, k);
    group->lda.assign(groups, k);
    group->ldb.assign(groups, k);
    group->ldc.assign(groups, n);
    group->size.assign(groups, 1);
    group->alpha.assign(groups, 1.0F);
    group->beta.assign(groups, 0.0F);
    Grouped* g = group.get();
    out.launch = [g](int copy, cudaStream_t stream) {
        const auto i = static_cast<std::size_t>(copy);
        check_blas(cublasSetStream(g->handle, stream), "cublasSetStream");
        check_blas(
            cublasGemmGroupedBatchedEx(g->handle, g->first_op.data(), g->second_op.data(), g->m.data(), g->n.data(),
                                       g->k.data(), g->alpha.data(), g->b[i], CUDA_R_16BF, g->lda.data(), g->a[i],
                                       CUDA_R_16BF, g->ldb.data(), g->beta.data(), g->c[i], CUDA_R_16BF, g->ldc.data(),
                                       static_cast<int>(g->m.size()), g->size.data(), CUBLAS_COMPUTE_32F),
            "cublasGemmGroupedBatchedEx");
    };
    out.capturable = false;  // the library copies its problem sizes from the host
    out.note = "one grouped call for all experts; balanced routing";
    out.library = "cublas-" + library_version();
    out.keep = group;
    return out;
}

}  // namespace orrery::cudabench
