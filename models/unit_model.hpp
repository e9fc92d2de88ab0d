#pragma once
// Prices of operations on a device that is described by its units: systolic arrays, vector units, a scratchpad, and units in the banks
// of its memory.
//
// Claims: a product takes the launch and the longer of its cycles on the systolic arrays (sim/device/systolic.hpp) and of moving each
// operand once through the memory; the load of its first tile and the store of its last one overlap with nothing, because the
// scratchpad holds two tiles' inputs and one tile's output (double buffering). A product that is one tile is hidden by nothing. Arrays
// run at the share of their clock that the best measured product reaches (`matrix_efficiency`). A product of few rows, which leaves most
// of an array idle, runs on the vector units where these are faster: a multiplication and an addition each. Fused attention overlaps its two
// products on the arrays, its softmax on the vector units and its memory traffic; heads narrower than an array leave a part of it
// idle, and few queries may attend on the vector units alone. Everything else is bound by vector operations or by memory. Decoding attention on a device with units in its banks takes the
// channel with the most heads (sim/device/pim_channel.hpp) and the softmax after it; with two row buffers it runs beside products.
// Where weights lie in the banks, a product runs there a vector at a time, or on the arrays where that is faster; a device without arrays
// does all products there, and attention of prompts query by query. What banks read takes their energy: it is told as the bytes through
// the main memory that take as much (`Cost::bytes`).
// Where drives hold keys and values (sim/device/storage_drive.hpp), decoding attention runs in them, or waits for what they read and
// then runs on the arrays; what a layer reads comes while the layer before computes, and what a prompt's layer keeps is written behind
// its attention.
// Scope: every operation of sim/device/operation.hpp, devices with units.yaml in the folder of their kernels.
// Arrays that skip pruned weights (`density`) do so in products with weights, which then move as much less; where the weights lie is not counted.
// Limits: no fusion of neighbouring operations; 8-bit products run the arrays at the ratio of the device's figures; latent attention
// does not run in the banks, and neither does training.
// Sources: Jouppi et al., "TPU v4", ISCA 2023; Dao, "FlashAttention-2", arXiv:2307.08691 (overlap of softmax and products); Heo et al.,
// "NeuPIMs", ASPLOS 2024. Vector operations of an element: kSoftmax and kElementwise below.
// Validated by tests/models/unit_model_test.cpp and `orrery validate devices`.

#include "sim/base/namespaces.hpp"
#include "sim/config/data_directory.hpp"
#include "sim/device/cost_model.hpp"
#include "sim/device/pim_channel.hpp"
#include "sim/device/separate_units.hpp"

namespace orrery::models {

/// What is wrong with parts of this device; empty where nothing is.
[[nodiscard]] std::vector<std::string> problems_of(const DeviceParts& parts, const DeviceSpec& device);
/// Reads units.yaml. Throws ConfigError for a malformed one, and for one that does not do what the device's figures say.
[[nodiscard]] DeviceParts read_parts(const std::string& file, const DeviceSpec& device, const DataDirectory& data);

class UnitModel final : public CostModel, public SeparateUnits {
  public:
    /// Parts without `problems_of`.
    UnitModel(const DeviceSpec& device, const DeviceParts& parts);
    [[nodiscard]] Cost cost(const Operation& operation) const override;
    [[nodiscard]] bool runs_beside(const Operation& operation) const override;

  private:
    [[nodiscard]] double seconds_of(const Gemm& gemm) const;
    [[nodiscard]] double seconds_of(const GroupedGemm& gemm) const;
    [[nodiscard]] double seconds_of(const FusedExperts& experts) const;
    [[nodiscard]] double seconds_of(const ExpertRouting& routing) const;
    [[nodiscard]] double seconds_of(const Attention& attention) const;
    [[nodiscard]] double seconds_of(const LatentAttention& attention) const;
    [[nodiscard]] double seconds_of(const IndexScores& scores) const;
    [[nodiscard]] double seconds_of(const TopChoice& choice) const;
    [[nodiscard]] double seconds_of(const DeltaScan& scan) const;
    /// The longer of arithmetic in 16 bits and of the memory.
    [[nodiscard]] double longer(double flops, double bytes) const;
    [[nodiscard]] double seconds_of(const Streaming& streaming) const;
    [[nodiscard]] double seconds_of(const Copy& copy) const;
    [[nodiscard]] double seconds_of(const Launch& launch) const;

    /// s of the arrays, or of the units in the banks where there are none, for `batch` products, at full efficiency of the clock reached.
    [[nodiscard]] double products(double m, double n, double k, double batch, Precision precision,
                                  double density = 1) const;
    /// s of `bytes` and a compute time with the first tile's load and the last one's store outside.
    [[nodiscard]] double buffered(double compute, double bytes, double m, double n, double k, double element) const;
    [[nodiscard]] bool in_banks(const Attention& attention) const;
    [[nodiscard]] bool in_drive(const Attention& attention) const;
    [[nodiscard]] double seconds_with_drive(const Attention& attention, double on_device) const;
    [[nodiscard]] bool in_banks(const Gemm& gemm) const;
    [[nodiscard]] double seconds_in_banks(const Attention& attention) const;
    [[nodiscard]] double seconds_on_arrays(const Gemm& gemm) const;
    /// s of the arrays or of the vector units, whichever are faster.
    [[nodiscard]] double products_anywhere(double m, double n, double k, double batch, Precision precision,
                                           double density) const;
    [[nodiscard]] double seconds_in_banks(double m, double n, double k, double batch, Precision precision) const;
    /// Bytes that the units in the banks take.
    [[nodiscard]] double bank_bytes(const Operation& operation) const;

    DeviceSpec device_;
    double scratchpad_;  ///< B
    PimSpec pim_;
    DriveSpec drive_;
    bool has_arrays_ = false;
    ComputeUnit arrays_;  ///< the systolic unit with the highest peak
    double vector_ = 0;   ///< operations/s
    double memory_ = 0;   ///< B/s
};

}  // namespace orrery::models
