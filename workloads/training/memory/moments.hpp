#pragma once
// The peak of software that frees what it no longer needs (AllocationSpec::moments): PyTorch programs outside Megatron's buffers.
//
// Claims: a rank always holds its share of weights and optimizer states. Beside them it holds at
//   the loss      what layers kept, and logits with their copies and gradients
//   backward      what layers kept, and all that one layer kept, or makes again, with the gradients between its products
//   its end       all gradients, and the last layer's
//   the step      all gradients, and the copies of the optimizer's kernels
// Gradients of earlier micro-batches are there throughout. Under ZeRO-3 weights are gathered as the sharding code does (ShardingCode), and a
// unit's gradients are whole until they are reduced. Where FSDP shards frozen weights, each unit's hooks hold its input and the gradient
// of that until the backward pass ends.
// Sources: PyTorch torch/distributed/fsdp/_runtime_utils.py (_root_pre_forward, _register_post_backward_reshard_only_hook) and
// torch/autograd/graph.py (register_multi_grad_hook holds gradients); torch/optim/adamw.py (_multi_tensor_adamw: square roots of second
// moments for all weights); DeepSpeed runtime/zero/stage3.py (step: 32-bit gradients of a sub-group of 1e9 weights) and config.py
// (stage3_max_live_parameters 1e9); Transformers loss/loss_utils.py (ForCausalLMLoss: logits.float(), shifted by a copy).
// Limits: kernels' workspaces are in reserved_memory. Validated by `orrery validate training-memory`.

#include "workloads/training/plan/memory_use.hpp"
#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// Bytes of a trained weight, its gradient and its optimizer states on the ranks that hold them.
struct StateBytes {
    double weight = 2;
    double gradient = 2;
    double states = 12;
    double value = 4;  ///< of a value that the optimizer computes with
};
/// As the plan or the software says; adapters may have types of their own.
[[nodiscard]] StateBytes state_bytes(const PlanSpec& plan, const SoftwareSpec& software);

/// What a layer keeps of a micro-batch for its backward pass, and the gradients between its products; B on a rank.
struct ModuleBytes {
    double kept = 0;
    double gradients = 0;
};
[[nodiscard]] ModuleBytes module_bytes(const ModelSpec& model, const PlanSpec& plan, const SoftwareSpec& software,
                                       LayerKind kind);

/// What a stage has of each kind, B on a rank.
struct StageParts {
    MemoryUse states;     ///< weights, all gradients, optimizer
    RankWeights held;     ///< weights of the stage before they are shared
    RankWeights largest;  ///< of its largest layer, or of what is gathered together
    double tables = 0;    ///< weights of tables of the vocabulary
    double kept = 0;      ///< by all layers of all micro-batches under way
    double inputs = 0;    ///< inputs of layers among it
    double working = 0;   ///< beside it, by the layer in its backward pass
    double input = 0;     ///< of a layer
    double logits = 0;
};
[[nodiscard]] MemoryUse peak_of_moments(const PlanSpec& plan, const SoftwareSpec& software, const StageParts& parts);

}  // namespace orrery::training
