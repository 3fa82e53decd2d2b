// The lookup of other tools' names. Edit distance would not find the keys for them.
#include "runner/config/foreign_names.hpp"

#include "runner/config/key_table.hpp"

namespace runner {

namespace {

/// Names whose values may have another meaning than those of the key: the key is only suggested.
constexpr std::pair<const char*, const char*> suggested_names[] = {
    // Hugging Face
    {"per_device_train_batch_size", "train.micro_batch_size"},
    {"per_device_eval_batch_size", "train.micro_batch_size"},
    {"gradient_accumulation_steps", "train.accumulate_grad_batches"},
    {"learning_rate", "optimizer.lr"},
    {"num_train_epochs", "train.max_epochs"},
    {"save_steps", "checkpoint.every_n_steps"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"logging_steps", "train.log_every_n_steps"},
    {"steps_per_print", "train.print_every_n_steps"},
    {"eval_steps", "train.val_check_interval"},
    {"lr_scheduler_type", "lr_scheduler.name"},
    {"layerwise_lr_decay", "optimizer.layer_decay"},
    {"layer_lr_decay", "optimizer.layer_decay"},
    {"llrd", "optimizer.layer_decay"},
    {"loraplus_lr_ratio", "fine_tune.lora_plus_ratio"},
    {"lora_plus_lr_ratio", "fine_tune.lora_plus_ratio"},
    {"param_groups", "optimizer.groups"},
    {"decay_shape", "lr_scheduler.decay_type"},
    {"num_decay_steps", "lr_scheduler.decay_steps"},
    {"num_warmup_steps", "lr_scheduler.warmup_steps"},
    {"lr_end", "lr_scheduler.min_lr_ratio"},
    {"eta_min", "lr_scheduler.min_lr_ratio"},
    {"min_lr_rate", "lr_scheduler.min_lr_ratio"},
    {"num_cycles", "lr_scheduler.cycle_steps"},
    {"T_0", "lr_scheduler.cycle_steps"},
    {"T_mult", "lr_scheduler.cycle_factor"},
    {"max_lr", "optimizer.lr"},
    {"prefetch_factor", "data.prefetch"},
    {"patience", "train.early_stopping"},
    {"min_delta", "train.early_stopping"},
    {"warmup_ratio", "lr_scheduler.warmup_steps"},
    {"max_grad_norm", "train.gradient_clip_val"},
    {"gradient_checkpointing", "activation_checkpointing.mode"},
    {"output_dir", "run.name"},
    {"run_name", "run.name"},
    {"hidden_size", "model.dim"},
    {"num_hidden_layers", "model.n_layers"},
    {"num_attention_heads", "model.n_heads"},
    {"num_key_value_heads", "model.n_kv_heads"},
    {"intermediate_size", "model.hidden_dim"},
    {"max_position_embeddings", "model.max_seq_len"},
    {"rms_norm_eps", "model.norm_eps"},
    {"layer_norm_epsilon", "model.norm_eps"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"hidden_act", "model.activation"},
    {"activation_function", "model.activation"},
    {"initializer_range", "model.init_std"},
    {"hidden_activation", "model.activation"},
    {"layer_norm_eps", "model.norm_eps"},
    {"attn_logit_softcapping", "model.attention_softcap"},
    {"final_logit_softcapping", "model.logits_softcap"},
    {"query_pre_attn_scalar", "model.attention_scale"},
    {"attention_multiplier", "model.attention_scale"},
    {"rotary_pct", "model.partial_rotary_factor"},
    {"rotary_emb_base", "model.rope_theta"},
    {"rope_parameters", "model.rope_scaling"},
    {"rope_local_base_freq", "model.rope_local_theta"},
    {"no_rope_layer_interval", "model.no_rope_every"},
    {"use_parallel_residual", "model.parallel_residual"},
    {"sliding_window_pattern", "model.layer_types"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"optim", "optimizer.name"},
    {"fp16", "precision.mode"},
    {"bf16", "precision.mode"},
    // PEFT, LLaMA-Factory, axolotl, torchtune, bitsandbytes
    {"finetuning_type", "fine_tune.method"},
    {"use_dora", "fine_tune.method"},
    {"dora", "fine_tune.method"},
    {"peft_use_dora", "fine_tune.method"},
    {"lora_r", "fine_tune.rank"},
    {"lora_rank", "fine_tune.rank"},
    {"lora_alpha", "fine_tune.alpha"},
    {"lora_dropout", "fine_tune.dropout"},
    {"use_rslora", "fine_tune.rslora"},
    {"target_modules", "fine_tune.targets"},
    {"lora_target", "fine_tune.targets"},
    {"lora_target_modules", "fine_tune.targets"},
    {"lora_modules_to_save", "fine_tune.modules_to_save"},
    {"additional_target", "fine_tune.modules_to_save"},
    {"adapter_name_or_path", "fine_tune.adapter"},
    {"loraplus_lr_ratio", "fine_tune.lora_plus_ratio"},
    {"load_in_4bit", "fine_tune.quantization"},
    {"quantize_base", "fine_tune.quantization"},
    {"quantization_bit", "fine_tune.quantization"},
    {"bnb_4bit_quant_type", "fine_tune.quantization"},
    {"bnb_4bit_use_double_quant", "fine_tune.double_quantization"},
    {"double_quant", "fine_tune.double_quantization"},
    {"resid_pdrop", "model.dropout"},
    {"attn_pdrop", "model.dropout"},
    {"embd_pdrop", "model.dropout"},
    // GPT-2, nanoGPT
    {"n_embd", "model.dim"},
    {"d_model", "model.dim"},
    {"embed_dim", "model.dim"},
    {"n_layer", "model.n_layers"},
    {"num_layers", "model.n_layers"},
    {"n_head", "model.n_heads"},
    {"num_heads", "model.n_heads"},
    {"n_positions", "model.max_seq_len"},
    {"n_ctx", "model.max_seq_len"},
    {"block_size", "model.max_seq_len"},
    {"context_length", "model.max_seq_len"},
    {"n_inner", "model.hidden_dim"},
    {"ffn_dim", "model.hidden_dim"},
    {"max_iters", "train.max_steps"},
    {"warmup_iters", "lr_scheduler.warmup_steps"},
    {"lr_decay_iters", "train.max_steps"},
    {"min_lr", "lr_scheduler.min_lr_ratio"},
    {"grad_clip", "train.gradient_clip_val"},
    {"eval_interval", "train.val_check_interval"},
    {"eval_iters", "train.limit_val_batches"},
    {"batch_size", "train.micro_batch_size"},
    {"dtype", "precision.mode"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    // torchtitan, Megatron, DeepSpeed, Lightning
    {"steps", "train.max_steps"},
    {"max_norm", "train.gradient_clip_val"},
    {"clip_grad", "train.gradient_clip_val"},
    {"gradient_clipping", "train.gradient_clip_val"},
    {"local_batch_size", "train.micro_batch_size"},
    {"train_batch_size", "train.global_batch_size"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
    {"global_batch", "train.global_batch_size"},
    {"vocabulary_size", "model.vocab_size"},
    {"max_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"seq_length", "data.seq_len"},
    {"gpus", "devices.devices"},
    {"nproc_per_node", "devices.devices"},
    {"nnodes", "devices.num_nodes"},
    {"save_interval", "checkpoint.every_n_steps"},
    {"every_n_train_steps", "checkpoint.every_n_steps"},
    {"epochs", "train.max_epochs"},
    {"limit_train_batches", "train.max_steps"},
    {"scheduler", "lr_scheduler.name"},
    // scikit-learn, pandas, torchvision, timm
    {"hidden_layer_sizes", "model.hidden_sizes"},
    {"hidden_channels", "model.hidden_sizes"},
    {"num_classes", "model.num_labels"},
    {"n_classes", "model.num_labels"},
    {"in_features", "model.num_features"},
    {"img_size", "model.image_size"},
    {"sync_bn", "model.sync_batchnorm"},
    {"target_column", "data.target"},
    {"label_column", "data.target"},
    {"drop_columns", "data.drop"},
    {"sep", "data.delimiter"},
    {"na_values", "data.missing_values"},
    {"data_dir", "data.train"},
    {"workers", "data.num_workers"},
    {"scale", "data.crop_scale"},
    {"ratio", "data.crop_ratio"},
    {"criterion", "train.loss"},
    {"loss_fn", "train.loss"},
    {"loss_function", "train.loss"},
    {"smoothing", "train.label_smoothing"},
    {"label_smoothing_factor", "train.label_smoothing"},
};

}  // namespace

const ForeignName* find_foreign_name(const std::string& name, const ForeignNames& more) {
  static const ForeignNames table = [] {
    ForeignNames all;
    for (const auto& [name, key] : suggested_names)
      all.emplace(name, ForeignName{.name = name, .key = key, .only_suggested = true});
    for (auto& entry : lightning_names()) all.emplace(entry.name, entry);
    return all;
  }();
  for (const auto* names : {&table, &more})
    if (auto found = names->find(name); found != names->end()) return &found->second;
  return nullptr;
}

std::optional<std::string> key_meant_by(const std::string& name, const ForeignNames& more) {
  for (const auto& key : key_table())
    if (key.name == name) return key.dotted();
  const auto* foreign = find_foreign_name(name, more);
  return foreign && !foreign->key.empty() ? std::optional(foreign->key) : std::nullopt;
}

}  // namespace runner
