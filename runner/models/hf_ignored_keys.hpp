// Keys of Hugging Face's config.json that do not change the results of training: about files, generation, tokens, and other libraries.
#pragma once
#include <set>
#include <string>

namespace runner {

inline const std::set<std::string>& hf_ignored_keys() {
  static const std::set<std::string> keys = {"architectures",
                                             "model_type",
                                             "torch_dtype",
                                             "dtype",
                                             "transformers_version",
                                             "use_cache",
                                             "bos_token_id",
                                             "eos_token_id",
                                             "pad_token_id",
                                             "unk_token_id",
                                             "sep_token_id",
                                             "cls_token_id",
                                             "decoder_start_token_id",
                                             "_name_or_path",
                                             "name_or_path",
                                             "auto_map",
                                             "cache_implementation",
                                             "_attn_implementation",
                                             "_attn_implementation_autoset",
                                             "attn_implementation",
                                             "_flash_attn_2_enabled",
                                             "id2label",
                                             "label2id",
                                             "return_dict",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "torchscript",
                                             "use_bfloat16",
                                             "tie_encoder_decoder",
                                             "is_encoder_decoder",
                                             "is_decoder",
                                             "add_cross_attention",
                                             "chunk_size_feed_forward",
                                             "problem_type",
                                             "runner",  // written by label_folder_config()
                                             "finetuning_task",
                                             "task_specific_params",
                                             "tokenizer_class",
                                             "prefix",
                                             "num_labels",
                                             "max_length",
                                             "min_length",
                                             "do_sample",
                                             "early_stopping",
                                             "num_beams",
                                             "num_beam_groups",
                                             "diversity_penalty",
                                             "temperature",
                                             "top_k",
                                             "top_p",
                                             "typical_p",
                                             "repetition_penalty",
                                             "length_penalty",
                                             "no_repeat_ngram_size",
                                             "encoder_no_repeat_ngram_size",
                                             "bad_words_ids",
                                             "num_return_sequences",
                                             "output_scores",
                                             "return_dict_in_generate",
                                             "forced_bos_token_id",
                                             "forced_eos_token_id",
                                             "remove_invalid_values",
                                             "exponential_decay_length_penalty",
                                             "suppress_tokens",
                                             "begin_suppress_tokens",
                                             "cross_attention_hidden_size",
                                             "tf_legacy_loss",
                                             "classifier_dropout",
                                             "unsloth_fixed",
                                             "unsloth_version",
                                             "_sliding_window_pattern",
                                             "gradient_checkpointing",
                                             "output_past"};
  return keys;
}

/// These keys and `more`, which mean nothing for one family.
inline std::set<std::string> hf_ignored_keys_and(std::set<std::string> more) {
  more.insert(hf_ignored_keys().begin(), hf_ignored_keys().end());
  return more;
}

}  // namespace runner
