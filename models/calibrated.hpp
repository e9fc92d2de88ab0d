#pragma once
// The calibrated compute model: every operation priced by the fit of its kernel on its device.
//
// Claims: see models/kernel_fit.hpp for the form. What has no fit on a device takes, in this order: the fit of a nearer
// format (block-scaled fp8: fp8; 8-bit cache, weight-only and 8 bits where the units have none: 16 bits with the smaller bytes), then the units of the device
// (units.yaml in its folder of kernels, models/unit_model.hpp), then the roofline.
// Fits hold burst times. Run without pause, a device reaches its power limit and lowers its clock: dynamic power goes with
// rate x clock^2, so a product held at rate r above the knee r0 slows down by (r / r0)^(1/3); in a mix the governor sees
// the mean of products and streaming kernels. Kernels that are long against the governor's reaction were slowed down in
// the sweep already and are not slowed down twice.
// Attention of training has kernels of its own where they were measured (H200, and H100 by it); elsewhere its forward pass is a
// prompt's, and the backward pass 2.5 times the work at 63/73 of the efficiency of forward.
// A device whose kernels are those of one with far more arithmetic beside its memory (H20: H200) takes no longer than those with its own
// memory's rate and the difference of arithmetic, as few rows leave tiles of slow units in part empty and no fit has seen that.
// The backward pass of the delta rule takes as many times its forward pass as it has arithmetic. Kimi delta attention without kernels of its
// own is priced by those of gated delta nets.
// Experts that are wanted unequally take as many times the price of even choices as fits of rows by a power law have it for
// the same or the nearest format. Where there are fewer choices than experts, the law of the sweeps leaves each an expert of its
// own: there the ratio less one goes in proportion to the choices.
// Scope: devices with a folder in models/data/kernels; others fall back on models/roofline.hpp.
// Limits: one library version a device, but for sets of kernels that an engine's software names; transposed layouts cost the
// same (every public table of products that says its layout has the forward one of a linear layer, so backward products are
// priced as forward ones); batched GEMMs (the unfused attention of 2021) and grouped GEMMs outside fused experts are priced by
// the roofline; kernels run alone.
// Sources: the head of each fit. Governor: 22,000 H200 and B200 products timed both in bursts and held for a second
// (ai-dynamo/aiconfigurator@095f58a, vLLM 0.24.0, 0.19.0 and 0.22.0): with exponent 1/3, knee 0.445 of the peak and
// 2 ms the mean deviation falls from 9.4 to 3.8 %. Narrow formats have the same knee as a share of their own peak: of 2,500 to
// 6,400 pairs of block-scaled fp8 on H200 it comes out at 0.39 to 0.47 (by the least row taken), of the bf16 pairs at 0.425 to
// 0.435; `orrery validate compute --data DIR` prints both. Backward attention: Dao, "FlashAttention-2", arXiv:2307.08691,
// section 4.1 (up to 73 % forward and 63 % backward of the A100's peak).
// Validated by `orrery validate compute`, tests/models/cost_model_test.cpp and `orrery validate training`.

#include "models/lazy_fit.hpp"
#include "models/roofline.hpp"
#include "sim/base/namespaces.hpp"
#include "sim/device/kernel_sets.hpp"
#include "sim/device/separate_units.hpp"

#include <memory>
#include <optional>
#include <string>

namespace orrery::models {

/// Share of the time in which matrix products run: 0 for bursts (a kernel now and then, as in a sweep), 1 for a product
/// held without pause, in between for a mix with streaming kernels.
inline constexpr double kBurst = 0;
inline constexpr double kHeld = 1;
/// A transformer's layer: matrix products and attention take about 70 % of its kernels' time (what this program's own
/// breakdown of GPT-3 and Llama-3 layers on A100 and H100 gives).
inline constexpr double kTransformer = 0.7;

/// s of a product that takes `seconds` in a burst where it runs `duty` of the time: the governor above. `peak`: FLOP/s of its format.
[[nodiscard]] double governed_seconds(const DeviceSpec& device, double duty, double seconds, double flops, double bytes,
                                      double peak);
/// The other way round: s in a burst of a kernel that takes `held` s where it runs without a pause.
[[nodiscard]] double burst_seconds(const DeviceSpec& device, double held, double flops, double bytes, double peak);

class Calibrated final : public CostModel, public SeparateUnits {
  public:
    /// Fits are in models/data/kernels of `data`; where the device has a set that `kernels` names, its fits replace the
    /// device's own. Throws ConfigError for fits that do not say what they are of; what else is wrong with one shows at its first use.
    Calibrated(const DeviceSpec& device, const DataDirectory& data, double duty = kTransformer,
               const KernelSets& kernels = {});
    [[nodiscard]] Cost cost(const Operation& operation) const override;
    [[nodiscard]] bool runs_beside(const Operation& operation) const override;
    /// The fit that prices a kind and format, or nullptr.
    [[nodiscard]] const KernelFit* fit(KernelKind kind, KernelFormat format) const;
    [[nodiscard]] bool has(KernelKind kind, KernelFormat format) const {
        return entries_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(format)].fit != nullptr;
    }

  private:
    struct Entry {
        std::shared_ptr<const LazyFit> fit;
        KernelRates rates;
        std::optional<KernelRates> measured;  ///< where the fit is from, if arithmetic is faster there beside memory
        std::shared_ptr<const std::string> lender;  ///< name of the device that the fit is of; null: this one
    };
    [[nodiscard]] Cost cost_of_skewed(const FusedExperts& experts) const;
    [[nodiscard]] Cost cost_from_prompt(const Attention& attention) const;
    [[nodiscard]] Cost cost_of_backward(const DeltaScan& scan) const;
    DeviceSpec device_;
    Roofline roofline_;
    std::unique_ptr<CostModel> without_;  ///< for operations without a kernel: the units, or the roofline
    double duty_;
    std::array<std::array<Entry, kKernelFormats>, kKernelKinds> entries_;
};

/// The files that the model of a device is made from, which are none for a device without kernels. Throws ConfigError.
[[nodiscard]] std::vector<std::string> kernel_files(const DeviceSpec& device, const DataDirectory& data,
                                                    const KernelSets& kernels);

/// The model a device gets for `compute: {model: calibrated}`: its fits, or the roofline where there are none.
[[nodiscard]] std::unique_ptr<CostModel> make_calibrated_model(const DeviceSpec& device, const DataDirectory& data,
                                                               const KernelSets& kernels = {});

}  // namespace orrery::models
