#pragma once
// Plans of models with an encoder: where it runs, what it asks of a plan, and what it holds.
//
// Claims: encoder and projector run on the first pipeline stage before the embedding, and their backward passes after it, once a
// micro-batch, as Megatron-Core's LLaVA without pipeline ranks of its own. Their tensor-parallel ranks are the language model's; they
// are without sequence parallelism, without products cut for overlap (--tp-comm-overlap) and without context parallelism, so that each
// context-parallel rank encodes all images. The first product and the positions are whole on every rank. Layers are computed again
// where the encoder says so (--recompute-vision), all of them; the projector never is. A frozen encoder has no backward pass and keeps
// nothing; its projector is trained (--freeze-ViT). Products are in the plan's precision, but for the first.
// Limits: every micro-batch has the mean number of images; images are of one size and attend to all of themselves (no windows); no
// resampler in place of the projector; biases are the products' own. Not with packed documents, adapters, offload or zeroth-order
// steps.
// Sources: NVIDIA/Megatron-LM, examples/multimodal/model.py and megatron/core/models/multimodal/llava_model.py; Liu et al.,
// arXiv:2310.03744 (LLaVA-1.5); Chen et al., arXiv:2404.16821 (InternVL 1.5, pixel shuffle).
// Validated by tests/workloads/encoder_test.cpp (closed forms; no measured run).

#include "workloads/training/plan/spec.hpp"

namespace orrery::training {

/// What is wrong with a plan for a model with an encoder; nothing for other models.
[[nodiscard]] PlanProblems encoder_problems(const ModelSpec& model, const PlanSpec& plan);

/// Weights of a rank: of so many layers of the encoder and its projector; those that are frozen as bytes.
[[nodiscard]] RankWeights encoder_weights(const ModelSpec& model, const PlanSpec& plan, const LayerMix& layers);

/// Images of a micro-batch.
[[nodiscard]] double images_of(const ModelSpec& model, const PlanSpec& plan);

/// The plan by which the layers of an encoder run.
[[nodiscard]] PlanSpec plan_of_encoder(const ModelSpec& model, const PlanSpec& plan);

}  // namespace orrery::training
