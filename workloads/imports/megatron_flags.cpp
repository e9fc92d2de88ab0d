#include "workloads/imports/megatron_flags.hpp"

namespace orrery::imports {

const std::vector<FlagGroup>& megatron_flag_groups() {
    static const std::vector<FlagGroup> kGroups = {
        {true, "decided together with other flags",
         "num-layers encoder-num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels "
         "group-query-attention "
         "num-query-groups seq-length encoder-seq-length vocab-size padded-vocab-size make-vocab-size-divisible-by "
         "tokenizer-type position-embedding-type use-rotary-position-embeddings swiglu quick-geglu squared-relu "
         "openai-gelu "
         "untie-embeddings-and-output-weights disable-bias-linear hidden-dropout attention-dropout qk-layernorm "
         "qk-l2-norm "
         "window-size window-attn-skip-freq multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim "
         "qk-pos-emb-head-dim v-head-dim num-experts moe-router-topk topk moe-ffn-hidden-size "
         "moe-shared-expert-intermediate-size moe-layer-freq moe-router-num-groups moe-router-group-topk "
         "moe-router-dtype "
         "moe-token-dispatcher-type moe-enable-deepep moe-flex-dispatcher-backend moe-expert-capacity-factor "
         "moe-pad-expert-input-to-capacity moe-shared-expert-overlap overlap-moe-expert-parallel-comm "
         "tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size "
         "moe-expert-parallel-size "
         "expert-tensor-parallel-size cp-comm-type hierarchical-context-parallel-sizes "
         "num-layers-per-virtual-pipeline-stage "
         "num-virtual-stages-per-pipeline-rank decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
         "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split pipeline-model-parallel-layout "
         "no-overlap-p2p-communication overlap-p2p-communication micro-batch-size global-batch-size "
         "recompute-activations "
         "recompute-granularity recompute-method recompute-num-layers recompute-modules checkpoint-activations "
         "activations-checkpoint-method zero-stage moe-layer-recompute "
         "sequence-parallel tp-comm-overlap "
         "use-distributed-optimizer overlap-grad-reduce overlap-param-gather use-torch-fsdp2 use-custom-fsdp "
         "use-megatron-fsdp data-parallel-sharding-strategy use-tp-pp-dp-mapping bf16 fp16 fp8-format fp8-hybrid "
         "fp8-e4m3 "
         "use-precision-aware-optimizer main-params-dtype exp-avg-dtype exp-avg-sq-dtype "
         "fp8-recipe fp4-format fp4-recipe accumulate-allreduce-grads-in-fp32 no-accumulate-allreduce-grads-in-fp32 "
         "grad-reduce-in-bf16 main-grads-dtype attention-backend use-flash-attn transformer-impl "
         "cross-entropy-loss-fusion "
         "cross-entropy-fusion-impl no-gradient-accumulation-fusion ddp-bucket-size enable-cuda-graph "
         "external-cuda-graph "
         "cuda-graph-impl cuda-graph-scope optimizer-cpu-offload optimizer-offload-fraction hybrid-override-pattern "
         "hybrid-layer-pattern mamba-state-dim mamba-head-dim mamba-num-groups mamba-num-heads nnodes nproc-per-node "
         "num-nodes num-gpus nodes gpus-per-node ntasks-per-node gres np ntasks is-hybrid-model hybrid-attention-ratio "
         "hybrid-mlp-ratio"},
        {true, "launcher",
         "DDP-impl deepspeed deepspeed-config deepscale deepspeed-activation-checkpointing no-pipeline-parallel "
         "master-addr master-port node-rank rdzv-id rdzv-backend rdzv-endpoint rdzv-conf max-restarts monitor-interval "
         "tee "
         "redirects log-dir local-rank local-addr role start-method standalone run-path no-python module m "
         "distributed-backend "
         "distributed-timeout-minutes distributed-timeout-seconds-after-init use-cpu-initialization lazy-mpu-init "
         "hostfile "
         "include exclude job-name time partition account output error exclusive mem cpus-per-task export qos "
         "dependency "
         "comment mail-type mail-user open-mode signal switches container-image container-mounts container-workdir "
         "container-name mpi overcommit kill-on-bad-exit no-container-mount-home unbuffered label jobid N n J A p t o "
         "e c q l u verbose cpu "
         "ntasks-per-socket gpus-per-task gpus hint constraint no-requeue requeue array chdir wait cpu-bind "
         "distribution "
         "bind-to map-by allow-run-as-root x H mca local-ranks-filter log-line-prefix-template use-nccl-comm-config "
         "inprocess-restart enable-ft-package calc-ft-timeouts ft-num-warmup-iters high-priority-stream-groups "
         "disable-jit-fuser use-gloo-process-groups disable-gloo-process-groups enable-gloo-process-groups "
         "lazy-init-process-groups yaml-cfg"},
        {true, "logging and checks",
         "log-interval log-throughput log-params-norm log-num-zeros-in-grad log-validation-ppl-to-tensorboard "
         "log-timers-to-tensorboard no-log-learnig-rate-to-tensorboard no-log-loss-scale-to-tensorboard "
         "log-batch-size-to-tensorboard log-memory-to-tensorboard log-world-size-to-tensorboard log-energy "
         "log-learning-rate-to-tensorboard log-loss-scale-to-tensorboard log-progress log-straggler "
         "log-l2-norm-grad-to-tensorboard "
         "log-max-attention-logit log-device-memory-used log-memory-interval tensorboard-dir tensorboard-log-interval "
         "tensorboard-queue-size wandb-project wandb-exp-name wandb-save-dir wandb-entity wandb-mode wandb-name "
         "timing-log-level timing-log-option barrier-with-L1-time no-barrier-with-level-1-timing logging-level "
         "enable-one-logger no-one-logger one-logger-project one-logger-entity one-logger-run-name one-logger-async "
         "app-tag-run-name app-tag-run-version disable-straggler-on-startup straggler-ctrlr-port "
         "straggler-minmax-count "
         "check-weight-hash-across-dp-replicas-interval check-for-large-grads check-for-spiky-loss "
         "config-logger-dir record-memory-history memory-snapshot-path print-params-num print-separator "
         "moe-per-layer-logging error-injection-rate error-injection-type rerun-mode log-params-data-type "
         "result-rejected-tracker-filename use-mup tensorboard-ignore-interval"},
        {true, "checkpoints, whose time 'faults.checkpoint' models",
         "save load save-interval save-retain-interval non-persistent-save-interval non-persistent-ckpt-type "
         "non-persistent-global-ckpt-dir non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo no-save-optim "
         "no-save-rng "
         "no-load-optim no-load-rng finetune pretrained-checkpoint ckpt-step ckpt-format use-dist-ckpt "
         "dist-ckpt-format dist-ckpt-strictness dist-ckpt-workers ckpt-fully-parallel-save ckpt-fully-parallel-load "
         "no-ckpt-fully-parallel-save ckpt-assume-constant-structure ckpt-convert-format ckpt-convert-save "
         "ckpt-convert-update-legacy-dist-opt-format async-save async-strategy use-persistent-ckpt-worker "
         "use-checkpoint-args no-use-checkpoint-args exit-on-missing-checkpoint use-mp-args-from-checkpoint-args "
         "no-use-tokenizer-model-from-checkpoint-args use-tokenizer-model-from-checkpoint-args auto-detect-ckpt-format "
         "override-opt-param-scheduler override-opt_param-scheduler use-checkpoint-opt-param-scheduler "
         "use-checkpoint-opt_param-scheduler replication replication-jump replication-factor adlr-autoresume "
         "adlr-autoresume-interval save-dgrads-interval save-wgrads-interval load-main-params-from-ckpt "
         "dist-ckpt-save-pre-mcore-014 strict-fsdp-dtensor-load dist-ckpt-optim-fully-reshardable "
         "distrib-optim-fully-reshardable-mem-efficient save-tokenizer-assets no-save-tokenizer-assets "
         "verify-integrity"},
        {true, "constants of the optimizer and its schedule",
         "lr min-lr lr-decay-style lr-decay-iters lr-decay-samples lr-decay-tokens lr-warmup-tokens lr-warmup-iters "
         "lr-warmup-samples "
         "lr-warmup-fraction "
         "lr-warmup-init lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples decoupled-lr decoupled-min-lr "
         "head-lr-mult "
         "weight-decay start-weight-decay end-weight-decay weight-decay-incr-style apply-wd-to-qk-layernorm clip-grad "
         "adam-beta1 adam-beta2 adam-eps sgd-momentum loss-scale initial-loss-scale min-loss-scale loss-scale-window "
         "hysteresis muon-momentum muon-split-qkv muon-use-nesterov muon-scale-mode muon-fp32-matmul-prec "
         "muon-num-ns-steps muon-extra-scale-factor warmup constant-lr-mult lr-mult-embedding fp16-lm-cross-entropy"},
        {true, "length of the run and evaluation, which an iteration does not have",
         "train-iters train-samples train-tokens rampup-batch-size decrease-batch-size-if-needed exit-interval "
         "exit-duration-in-mins "
         "exit-signal-handler exit-signal eval-iters eval-interval full-validation multiple-validation-sets skip-train "
         "test-mode iterations-to-skip train-sync-interval manual-gc manual-gc-interval no-manual-gc-eval "
         "phase-transition-iterations "
         "profile profile-step-start profile-step-end profile-ranks use-pytorch-profiler "
         "pytorch-profiler-collect-shapes "
         "nvtx-ranges perform-rl-step perform-initialization no-initialization eod-mask-loss"},
        {true, "data and its order",
         "data-path train-data-path valid-data-path test-data-path data-args-path per-split-data-args-path split "
         "data-cache-path "
         "mock-data no-mmap-bin-files mmap-bin-files vocab-file merge-file vocab-extra-ids tokenizer-model "
         "tiktoken-pattern "
         "tiktoken-num-special-tokens tiktoken-special-tokens tokenizer-hf-use-fast "
         "tokenizer-hf-include-special-tokens "
         "trust-remote-code num-workers reset-position-ids reset-attention-mask create-attention-mask-in-dataloader "
         "no-create-attention-mask-in-dataloader num-dataset-builder-threads object-storage-cache-path "
         "mid-level-dataset-surplus "
         "dataloader-type dataloader-save s3-cache-path seed data-parallel-random-init te-rng-tracker "
         "inference-rng-tracker "
         "no-data-sharding retriever-seq-length sample-rate mask-prob short-seq-prob fim-data fim-rate fim-spm-rate "
         "fim-split-sample fim-fragment-rate fim-no-prefix fim-prefix-token fim-middle-token fim-suffix-token "
         "fim-pad-token "
         "fim-eod-token sft sft-tokenizer-prompt-format legacy-tokenizer metadata-path null-tokenizer-eod-id "
         "null-tokenizer-pad-id tokenizer-special-tokens tokenizer-name-or-path defer-npy-index-mmap fast-cache-load "
         "dataset extra-vocab-size max-padding-length dataset-config train-data valid-data "
         "data-impl train-mode use-hf-tokenizer patch-tokenizer-type renormalize-blend-weights "
         "allow-ambiguous-pad-tokens"},
        {true, "initial values, positions and constants of layers",
         "init-method-std init-method-xavier-uniform embedding-init-method-std max-position-embeddings rotary-base "
         "rotary-percent rotary-interleaved rotary-seq-len-interpolation-factor rotary-scaling-factor use-rope-scaling "
         "rope-scaling-factor mrope-section no-position-embedding no-rope-freq norm-epsilon layernorm-epsilon "
         "normalization "
         "apply-layernorm-1p apply-query-key-layer-scaling no-query-key-layer-scaling attention-softmax-in-fp32 "
         "softmax-type mscale mscale-all-dim beta-fast beta-slow yarn-rotary-scaling-factor "
         "yarn-original-max-position-embeddings "
         "yarn-beta-fast yarn-beta-slow yarn-mscale yarn-mscale-all-dim yarn-correction-range-round-to-int "
         "original-max-position-embeddings rope-type glu-linear-offset activation-func-clamp-value add-qkv-bias "
         "add-bias-linear "
         "attention-output-gate use-legacy-models use-mcore-models spec export-legacy-megatron model-name "
         "norm-init-weight "
         "moe-router-load-balancing-type moe-router-score-function moe-router-enable-expert-bias "
         "moe-router-bias-update-rate "
         "moe-router-topk-scaling-factor moe-router-pre-softmax moe-router-force-load-balancing moe-aux-loss-coeff "
         "moe-loss-coeff "
         "moe-z-loss-coeff moe-input-jitter-eps moe-token-drop-policy moe-token-dropping moe-use-legacy-grouped-gemm "
         "moe-extended-tp moe-router-padding-for-fp8 moe-router-padding-for-quantization attention-dropout-rate "
         "transformer-layer-norm fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo "
         ""
         "no-check-for-nan-in-loss-and-grad check-for-nan-in-loss-and-grad use-te use-mcore "
         "overlap-param-gather-with-optimizer-step-off "
         "ddp-average-in-collective calculate-per-token-loss keep-fp8-transpose-cache mtp-loss-scaling-factor"},
        {true, "the kernels are the same size",
         "no-masked-softmax-fusion masked-softmax-fusion no-persist-layer-norm persist-layer-norm no-rope-fusion "
         "apply-rope-fusion "
         "moe-grouped-gemm moe-permute-fusion moe-router-fusion no-scatter-gather-tensors-in-pipeline "
         "align-grad-reduce "
         "no-align-grad-reduce align-param-gather no-align-param-gather ddp-pad-buckets-for-high-nccl-busbw "
         "ddp-num-buckets batch-p2p-communication no-batch-p2p-communication use-ring-exchange-p2p "
         "suggested-communication-unit-size "
         "microbatch-group-size-per-virtual-pipeline-stage overlap-p2p-communication-warmup-flush "
         "no-async-tensor-model-parallel-allreduce "
         "no-delay-grad-reduce delay-grad-reduce no-delay-param-gather delay-param-gather tp-comm-bootstrap-backend "
         "tp-comm-overlap-cfg disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs disable-tp-comm-bulk-dgrad "
         "disable-tp-comm-bulk-wgrad tp-comm-split-ag tp-comm-split-rs tp-comm-overlap-rs-dgrad bias-swiglu-fusion "
         "bias-gelu-fusion bias-dropout-fusion"},
        {false, "an elementwise operation in kernels of its own; 'plan.fusion: eager' covers all of them",
         "no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion use-fused-weighted-squared-relu"},
        {false, "layers or sums in another precision than the rest",
         "no-fp8-wgrad first-last-layers-bf16 num-layers-at-start-in-bf16 num-layers-at-end-in-bf16 "
         "fp32-residual-connection"},
        {false, "deterministic kernels, which are slower", "deterministic-mode batch-invariant-mode"},
        {false, "the allocator is emptied in each iteration", "empty-unused-memory-level"},
        {false, "heads that predict further tokens: a layer and the loss for each",
         "mtp-num-layers mtp-use-repeated-layer"},
        {false, "an optimizer other than Adam with 32-bit states",
         "optimizer "
         "decoupled-weight-decay "
         "no-decoupled-weight-decay use-layer-wise-distributed-optimizer muon-tp-mode store-param-remainders"},
        {false, "weights that are gathered in 8 bits or kept out of 32-bit copies",
         "fp8-param-gather fp4-param-gather reuse-grad-buf-for-mxfp8-param-ag fp8-param fp4-param "
         "fp8-quantizer-factory "
         "fp4-quantizer-factory te-precision-config-file kitchen-config-file kitchen-recipe-number "
         "fp8-dot-product-attention "
         "fp8-multi-head-attention"},
        {false, "a part of the overlap that plan.overlap does not tell apart",
         "overlap-param-gather-with-optimizer-step overlap-cpu-optimizer-d2h-h2d delay-wgrad-compute "
         "defer-embedding-wgrad-compute wgrad-deferral-limit tp-comm-overlap-disable-qkv tp-comm-overlap-disable-fc1 "
         "moe-deepep-num-sms moe-hybridep-num-sms ep-overlap-early-attn-memory-release "
         "async-tensor-model-parallel-allreduce "
         "combined-1f1b combined-1f1b-recipe moe-per-layer-overlap"},
        {false, "activations on the host; 'plan.offload.activations' needs a node with memory tiers",
         "cpu-offloading cpu-offloading-num-layers cpu-offloading-activations cpu-offloading-weights "
         "no-cpu-offloading-activations cpu-offloading-double-buffering fine-grained-activation-offloading "
         "offload-modules "
         "min-offloaded-tensor-size use-torch-optimizer-for-cpu-offload no-pin-cpu-grads no-pin-cpu-params "
         "distribute-saved-activations distribute-checkpointed-activations activations-checkpoint-num-layers "
         "optimizer-offload-policy"},
        {false, "how communicators are built",
         "num-distributed-optimizer-instances nccl-communicator-config-path nccl-ub use-sharp sharp-enabled-group "
         "fsdp-double-buffer outer-dp-sharding-strategy init-model-with-meta-device gradient-reduce-div-fusion "
         "no-gradient-reduce-div-fusion disable-symmetric-registration fsdp-manual-registration "
         "create-all-gather-group suggested-communication-unit"},
        {false, "CUDA graphs in part",
         "cuda-graph-warmup-steps cuda-graph-use-single-mempool cuda-graph-retain-backward-graph "
         "cuda-graph-share-io-buffers "
         "cuda-graph-modules optimizer-cuda-graph"},
        {false, "an attention of another kind",
         "experimental-attention-variant dsa-indexer-n-heads dsa-indexer-head-dim dsa-indexer-topk "
         "dsa-indexer-loss-coeff "
         "linear-attention-freq linear-conv-kernel-dim linear-key-head-dim linear-value-head-dim linear-num-key-heads "
         "linear-num-value-heads linear-attention-type chunk-attention-size attention-chunk-size cache-mla-latents "
         "mla-down-proj-fusion"},
        {false, "distillation, adapters and other work beside pre-training",
         "export-kd-cfg export-kd-teacher-load teacher-model-config distillation-alpha-lm lora-rank lora-alpha "
         "retro-project-dir retro-add-retriever retro-encoder-layers retro-num-neighbors use-lora peft "
         "moe-use-upcycling moe-upcycling-granularity moe-apply-probs-on-input moe-latent-size moe-shared-expert-gate "
         "hybrid-context-parallel max-seqlen-per-dp-cp-rank use-packed-sequence variable-seq-lengths sequence-packing"},
        {false, "pipelines of another shape",
         "pipeline-model-parallel-split-rank standalone-embedding-stage encoder-pipeline-model-parallel-size "
         "encoder-tensor-model-parallel-size decoder-num-layers decoder-seq-length enable-zero-bubble "
         "zero-bubble-v-schedule "
         "zero-bubble-adaptive-memory-limit enable-vpp pipeline-model-parallel-comm-backend "
         "expert-pipeline-model-parallel-size tp-comm-atomic-gemm heterogeneous-layers-config-path "
         "heterogeneous-layers-config-encoded-json ffn-hidden-sizes per-layer-config"},
    };
    return kGroups;
}

}  // namespace orrery::imports
