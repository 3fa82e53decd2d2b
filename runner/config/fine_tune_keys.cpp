// The keys of [fine_tune]: which parameters are trained, and adapters.
#include "runner/config/key_adder.hpp"

// The rows of the table are wrapped by hand.
// clang-format off

namespace runner::keys {

void add_fine_tune(std::vector<Key>& keys) {
  Adder add(keys, "fine_tune", &Recipe::fine_tune);
  using F = Recipe::FineTune;
  const Facts lora{.needs = {"fine_tune.method", {"lora", "dora"}}}, freeze{.needs = {"fine_tune.method", {"freeze"}}};
  add({.name = "method", .type = T::choice,
       .help = "full: all parameters are trained. lora: low-rank adapters of matrices are trained. dora: the same, and "
               "the length of each row of the sum is a parameter of its own. freeze: the parameters that `trainable` names are trained.",
       .choices = {"full", "lora", "dora", "freeze"},
       .spellings = {{"LoRA", "lora"}, {"LORA", "lora"}, {"DoRA", "dora"}, {"DORA", "dora"}},
       .refuses = [](const json& value) {
         const bool qlora = value == "qlora" || value == "QLoRA" || value == "QLORA";
         return std::string(qlora ? "QLoRA is method = \"lora\" with fine_tune.quantization = \"nf4\"" : "");
       }}, &F::method);
  add({.name = "rank", .type = T::integer,
       .help = "Rank of the adapters: a matrix [out, in] gets A [rank, in] and B [out, rank].", .minimum = 1}, &F::rank, lora);
  add({.name = "alpha", .type = T::number,
       .help = "The product of B and A is multiplied by alpha / rank.", .minimum = 0, .above_minimum = true}, &F::alpha, lora);
  add({.name = "rslora", .type = T::boolean,
       .help = "The factor is alpha / sqrt(rank) instead (rank-stabilised LoRA)."}, &F::rslora, lora);
  add({.name = "dropout", .type = T::number,
       .help = "Dropout of the adapters' input.", .minimum = 0, .maximum = 0.999}, &F::dropout, lora);
  add({.name = "targets", .type = T::texts,
       .help = "Modules that get adapters: \"all-linear\" for all matrices of layers, names of Hugging Face (\"q_proj\"), our names "
               "(\"attention.wq\"), or globs over either."}, &F::targets, lora);
  add({.name = "modules_to_save", .type = T::texts,
       .help = "Modules that are trained completely, in addition to the adapters: \"lm_head\", \"embed_tokens\". A classifier always is."},
      &F::modules_to_save, lora);
  add({.name = "adapter", .type = T::path,
       .help = "A folder of PEFT (adapter_config.json, adapter_model.safetensors) with the adapter that training starts from."},
      &F::adapter, lora);
  add({.name = "lora_plus_ratio", .type = T::number,
       .help = "The learning rate of B relative to that of A (LoRA+; its paper suggests 16). Default: equal rates.",
       .minimum = 0, .above_minimum = true}, &F::lora_plus_ratio, lora);
  add({.name = "quantization", .type = T::choice,
       .help = "nf4 (QLoRA): the frozen matrices of layers are stored in 4 bits, and computed with in the precision of the run. Not "
               "norms, embeddings and the head.",
       .choices = {"none", "nf4"}, .spellings = {{"NF4", "nf4"}}}, &F::quantization, lora);
  add({.name = "double_quantization", .type = T::boolean,
       .help = "The factors of the 4-bit blocks have 8 bits instead of 32: 0.52 bytes per weight instead of 0.56."},
      &F::double_quantization, {.needs = {"fine_tune.quantization", {"nf4"}}});
  add({.name = "trainable", .type = T::texts,
       .help = "Globs over the names of the parameters that are trained: \"head.*\", \"blocks.11.*\"."}, &F::trainable, freeze);
}

}  // namespace runner::keys
