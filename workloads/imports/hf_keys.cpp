#include "workloads/imports/hf_keys.hpp"

namespace orrery::imports {

const std::vector<FlagGroup>& hf_key_groups() {
    static const std::vector<FlagGroup> groups = {
        {true, "names and versions",
         "architectures auto_map _name_or_path name_or_path transformers_version model_type torch_dtype dtype "
         "_commit_hash _attn_implementation attn_implementation torchscript tf_legacy_loss use_bfloat16 return_dict "
         "output_attentions output_hidden_states output_scores return_dict_in_generate output_router_logits "
         "is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder "
         "tokenizer_class prefix problem_type task_specific_params finetuning_task id2label label2id pruned_heads "
         "remove_invalid_values chunk_size_feed_forward use_cache gradient_checkpointing model_version "
         "transformers.js_config cache_implementation decoder_start_token_id _experts_implementation "
         "use_flash_attn fused_ops use_fused_ops unsloth_fixed unsloth_version base_model_name_or_path"},
        {true, "tokens with a meaning",
         "bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id cls_token_id mask_token_id image_token_id "
         "video_token_id audio_token_id image_token_index video_token_index vision_start_token_id vision_end_token_id "
         "vision_token_id boi_token_index eoi_token_index boi_token_id eoi_token_id boa_token_id eoa_token_id "
         "media_placeholder_token_id image_placeholder video_placeholder video_placeholder_token_id ignore_index "
         "im_start_id im_end_id text_token_id eod_token_id begin_suppress_tokens suppress_tokens "
         "forced_bos_token_id forced_eos_token_id bad_words_ids mm_tokens_per_image img_context_token_id "
         "video_start_token_id video_end_token_id image_start_token_id image_end_token_id eoa_token_index "
         "audio_start_token_id audio_end_token_id spatial_merge_size image_newline_id im_newline_id im_patch_id"},
        {true, "how answers are drawn",
         "temperature top_k top_p typical_p do_sample max_length min_length num_beams num_beam_groups "
         "num_return_sequences repetition_penalty length_penalty no_repeat_ngram_size diversity_penalty "
         "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty num_logits_to_keep "
         "max_new_tokens generation_config"},
        {true, "training",
         "attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop residual_dropout embedding_dropout "
         "classifier_dropout initializer_range init_std init_method initializer_cutoff_factor aux_loss_alpha seq_aux "
         "router_aux_loss_coef router_z_loss_coef router_jitter_noise rescale_prenorm_residual output_dropout "
         "pretraining_tp ep_size moe_dropout rope_dropout hidden_dropout_prob attention_probs_dropout_prob "
         "embedding_initializer_range summary_type summary_use_proj summary_activation summary_first_dropout "
         "summary_proj_to_labels scale_init residual_scale z_loss aux_loss_free_bias_update_rate"},
        {true, "constants and positions",
         "indexer_rope_interleave rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon hc_eps "
         "rope_theta rope_scaling "
         "rope_parameters rope_local_base_freq rope_interleave rope_type rotary_dim rotary_pct rotary_emb_base "
         "partial_rotary_factor original_max_position_embeddings initial_context_length max_sequence_length "
         "compress_rope_theta swiglu_limit swiglu_limits swiglu_alpha logits_scaling logit_scale embedding_multiplier "
         "residual_multiplier attention_multiplier query_pre_attn_scalar final_logit_softcapping "
         "attn_logit_softcapping attention_softcap rope_percentage alibi use_alibi use_mrope mrope_section use_nope "
         "mla_use_nope no_rope_layers no_rope_layer_interval nope_layer_interval attn_temperature_tuning attn_scale "
         "floor_scale scale_emb scale_depth dim_model_base scale_attn_weights layer_norm_type norm_type qk_norm_type "
         "use_qk_norm qk_norm qk_layernorm use_qk_layernorm query_key_norm add_qk_norm norm_after_embedding "
         "add_swa_attention_sink_bias add_full_attention_sink_bias attention_value_scale swa_rope_theta sinks "
         "use_layer_scale time_step_floor time_step_max time_step_min time_step_limit time_step_rank "
         "residual_in_fp32 mamba_ssm_dtype mamba_ssm_cache_dtype mamba_hidden_act mamba_rms_norm use_mamba_kernels "
         "activation_situ_beta activation_situ_linear_beta gate_lower_bound max_window_layers attention_bias "
         "mlp_bias qkv_bias use_qkv_bias use_bias use_conv_bias mamba_proj_bias mamba_conv_bias conv_bias o_bias "
         "add_bias_linear add_qkv_bias bias rms_norm layernorm_zero_centered attn_output_bias attention_out_bias "
         "apply_residual_connection_post_layernorm post_layer_norm pre_norm parallel_residual use_parallel_residual "
         "use_rmsnorm use_parallel_embedding no_bias new_decoder_architecture mlp_type attn_type clip_qkv qk_ln "
         "softmax_scale attn_impl attn_uses_sequence_id alibi_bias_max prefix_lm rope_impl "
         "postnorm shared_moe_mode use_residual word_embed_proj_dim do_layer_norm_before n_ctx "
         "moe_layer_frequency moe_loss_weight moe_normalize_expert_weights moe_jitter_eps "
         "uniform_expert_assignment use_mixed_mlp_moe cla_share_factor xai_temperature_len "
         "attn_output_multiplier embedding_multiplier_scale output_multiplier_scale moe_layer_num_skipped "
         "use_scaled_rope llama_4_scaling yarn route_every_n routed_scale expert_parallel expert_model_parallel "
         "hidden_act hidden_activation activation_function act_fn "
         "mlp_hidden_act gated_linear_unit original_position_embedding rope_ratio multi_query_attention "
         "use_pre_norm use_post_norm norm_before_gate norm_placement use_sconv longrope_factor normalization_function "
         "position_embedding_type mla_scale_q_lora mla_scale_kv_lora mup_enabled zero_centered key_multiplier "
         "attention_in_multiplier attention_out_multiplier ssm_in_multiplier ssm_out_multiplier ssm_multipliers "
         "mlp_multipliers lm_head_multiplier mamba_norm_before_gate projectors_bias mamba_use_mlp"},
        {true, "how a router weighs its choices",
         "norm_topk_prob scoring_func topk_method routed_scaling_factor route_scale router_scaling_factor "
         "moe_router_activation_func moe_renormalize use_grouped_topk use_routing_bias score_function "
         "norm_expert_weight need_fp32_gate routed_scaling_factor_learnable router_scale moe_router_scaling_factor "
         "moe_router_topk_scaling_factor use_expert_bias router_bias router_dtype moe_router_enable_expert_bias "
         "moe_use_router_bias router_score_function apply_router_weights_on_input moe_correction_bias "
         "moe_shared_expert_overlap latent_moe_use_norm expert_dtype num_hash_layers router_type "
         "use_moe_router_bias moe_router_use_sigmoid norm_min moe_layernorm score_func"},
        {true, "layers that are counted elsewhere",
         "zero_expert_type attention_method org_vocab_size moe_layer_end_index conv_dim conv_dim_out block_dim "
         "block_ff_dim "
         "block_multiple_of block_ffn_dim_multiplier block_auto_adjust_ff_dim block_mlp_init_scale "
         "block_out_init_scale block_use_swiglu block_use_xavier_init conv_use_xavier_init "
         "qk_head_dim expand ssm_cfg linear_conv_kernel_dim conv_kernel mamba_d_conv chunk_size mamba_chunk_size "
         "conv_L_cache mamba_expand mamba_inner_layernorms n_groups use_gated_mlp head_dim_swa use_sliding_window "
         "max_num_images image_grid_pinpoints vision_feature_layer vision_feature_select_strategy thinker_config "
         "language_config "
         "use_unified_vision_chunk text_config llm_config projector_hidden_act multimodal_projector_bias "
         "force_image_size downsample_ratio select_layer template dynamic_image_size use_thumbnail ps_version "
         "min_dynamic_patch max_dynamic_patch pixel_shuffle_ratio quantization_config compression_config "
         "vision_config audio_config video_config"},
        {false, "the drafting layers of multi-token prediction, whose weights are left out (engine.speculation)",
         "num_nextn_predict_layers mtp_num_hidden_layers num_mtp_modules mtp_transformer_layers use_mtp "
         "mtp_use_dedicated_embeddings mtp_layers_block_type num_mtp_layers mtp_loss_scaling_factor mtp_num_layers "
         "n_predict add_mtp mtp_replicate_modules mtp_hybrid_override_pattern mtp_lossweight "
         "num_mtp_predict_layers"},
        {false, "the indexer of sparse attention over keys that are not latent: every token attends to all before it",
         "index_head_dim index_n_heads index_topk"},
        {false, "layers that take what another's indexer chose: every layer has its own",
         "index_topk_freq index_topk_pattern indexer_types index_skip_topk index_share_for_mtp_iteration"},
        {false, "attention to chosen blocks of keys: every token attends to all before it", "sparse_attention_config"},
        {false, "a gate of latent attention's output", "mla_use_output_gate"},
        {false, "a gate of each head's output", "use_head_wise_attn_gate"},
        {false, "heads of layers with a window that differ: all have those of full layers", "attention_other_setting"},
        {false, "layers that share their caches with others: every layer has its own", "use_cla num_kv_shared_layers"},
        {false, "queries that are projected twice (multi-matrix factorisation)", "share_q_dim"},
        {false, "embeddings of each layer, whose tables are left out",
         "hidden_size_per_layer_input vocab_size_per_layer_input"},
        {false, "streams beside the residual one and their products (AltUp, LAuReL)",
         "altup_num_inputs laurel_rank altup_active_idx altup_coef_clip altup_correct_scale "
         "activation_sparsity_pattern"},
        {false, "widths that differ between layers: all have those of layers with a window",
         "global_head_dim num_global_key_value_heads use_double_wide_mlp attention_k_eq_v"},
        {false, "attention to blocks of the prompt (sparse): every token attends to all before it",
         "blocksparse_block_size blocksparse_num_local_blocks blocksparse_vert_stride dense_attention_every_n_layers "
         "blocksparse_homo_head_pattern blocksparse_triton_kernel_block_size sparse_config"},
        {false, "attention to the encoder's output", "cross_attention_layers"},
        {false, "compressed attention: every token attends to all before it", "compress_ratios compress_ratio"},
        {false, "hyper-connections: streams beside the residual one", "hc_mult hc_sinkhorn_iters hyper_connections"},
        {false, "vision and sound as inputs", "vision_model audio_model vision_tower mm_projector_type"},
        {false, "speech as an output",
         "talker_config token2wav_config code2wav_config enable_audio_output enable_talker"},
        {false, "sparse residuals between layers", "attn_res_block_size"},
    };
    return groups;
}

}  // namespace orrery::imports
