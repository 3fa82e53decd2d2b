// The keys of [model] and [data].
#include "runner/config/key_adder.hpp"
#include "runner/config/model_families.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

const Facts decoder{.family = "decoder"}, gpt_or_vit{.family = "gpt vit"}, encoder{.family = "encoder"},
    language{.family = language_models}, layered{.family = "gpt decoder encoder vit"}, plugin{.family = "plugin"},
    of_tokens{.family = "gpt decoder encoder plugin"}, of_this_project{.family = "gpt decoder encoder mlp vit resnet"};

std::vector<std::string> model_names() {
  auto names = model_family_names();
  names.emplace_back("plugin");
  return names;
}

const Facts records{.needs = {"data.format", {"jsonl", "parquet", "csv", "plugin"}}, .tokens = true},
    with_sources{.needs = {.key = "data.sources", .set = true}};

/// The columns that data.layout knows.
std::vector<Option> column_options() {
  std::vector<Option> columns;
  for (const char* name : {"text", "text_pair", "messages", "tools", "prompt", "completion", "instruction", "input", "output", "system",
                           "history", "conversations"})
    columns.push_back({.name = name, .type = T::text});
  return columns;
}

/// The keys of data that consist of records, and of several sources.
void add_records(Adder<Recipe::Data>& add) {
  using D = Recipe::Data;
  add({.name = "layout", .type = T::choice,
       .help = "What the columns of a record mean. text: plain text. messages: a conversation as OpenAI writes it. "
               "prompt_completion: prompt, completion. alpaca: instruction, input, output. sharegpt: conversations of from, "
               "value. auto: decided by the columns of the first record.",
       .choices = {"auto", "text", "messages", "prompt_completion", "alpaca", "sharegpt"},
       .spellings = {{"chat", "messages"}, {"openai", "messages"}, {"prompt-completion", "prompt_completion"}}},
      &D::layout, records);
  add({.name = "chat_template", .type = T::path,
       .help = "The template of conversations: chatml, llama3, llama2, mistral, gemma, phi3, zephyr, alpaca, vicuna, a file, or a "
               "folder with one. Default: the tokenizer's."}, &D::chat_template, records);
  add({.name = "train_on", .type = T::texts,
       .help = "Messages whose tokens are supervised: assistant, last (of the assistant), all, or a list of roles."},
      &D::train_on, records);
  add({.name = "train_on_input", .type = T::boolean,
       .help = "Prompts are supervised, too: of messages, all of them."}, &D::train_on_input, records);
  add({.name = "packing", .type = T::choice,
       .help = "none: each record is a sample. best_fit: a row of a batch contains several records, which do not see each other. "
               "wrapped: records are joined and cut into samples of equal length. Default: wrapped for plain text, none for all "
               "other layouts.",
       .choices = {"none", "best_fit", "wrapped"},
       .spellings = {{"false", "none"}, {"true", "best_fit"}, {"bfd", "best_fit"}, {"ffd", "best_fit"}}}, &D::packing, records);
  add({.name = "too_long", .type = T::choice,
       .help = "What happens to a record with more than seq_len + 1 tokens. truncate: its end is left out; of two texts, the end "
               "of the longer one. drop: it is left out. split: it becomes several samples. error: the run does not start.",
       .choices = {"truncate", "drop", "split", "error"}, .spellings = {{"raise", "error"}}}, &D::too_long, records);
  add({.name = "columns", .type = T::table,
       .help = "The names of columns in the records, if they differ: { text = \"content\" }. With objective = \"classification\", "
               "text_pair names the column of a second text.",
       .fields = column_options()}, &D::columns, records);
  add({.name = "group_by_length", .type = T::boolean,
       .help = "Samples of a batch have similar lengths, so that rows need little padding. For packing = \"none\" with shuffle."},
      &D::group_by_length, records);
  using S = D::Source;
  OptionTable<S> sources;
  sources.add({.name = "name", .type = T::text, .required = true}, &S::name)
      .add({.name = "train", .type = T::paths, .required = true}, &S::train)
      .add({.name = "validation", .type = T::paths}, &S::validation)
      .add({.name = "weight", .type = T::number, .minimum = 0, .above_minimum = true}, &S::weight)
      .add({.name = "epochs", .type = T::integer, .minimum = 1}, &S::epochs)
      .add({.name = "format", .type = T::choice, .choices = {"jsonl", "parquet", "csv"}}, &S::format)
      .add({.name = "layout", .type = T::choice,
            .choices = {"auto", "text", "messages", "prompt_completion", "alpaca", "sharegpt"}}, &S::layout)
      .add({.name = "columns", .type = T::table, .fields = column_options()}, &S::columns);
  add({.name = "sources", .type = T::tables,
       .help = "[[data.sources]] name, train, validation, weight, epochs, format, layout, columns: several sources instead of `train` "
               "and `validation`. weight: share of the samples. epochs: how often an epoch takes a source without weight "
               "(default 1). format: of records, if it is not data.format. Each row takes the source that is furthest behind its "
               "share.",
       .wanted = "a list of tables with a name and training files"}, &D::sources, sources, {.tokens = true});
  add({.name = "temperature", .type = T::number,
       .help = "Sources without weights have shares of size^(1/temperature). 1: their sizes. Larger values take small sources "
               "more often.", .minimum = 0, .above_minimum = true}, &D::temperature, with_sources);
  add({.name = "mixture_end", .type = T::choice,
       .help = "An epoch of sources with shares ends when the first, or when each source has been taken completely.",
       .choices = {"first_exhausted", "all_exhausted"}}, &D::mixture_end, with_sources);
}

}  // namespace

void add_model(std::vector<Key>& keys) {
  Adder add(keys, "model", &Recipe::model);
  using M = Recipe::Model;
  add({.name = "name", .type = T::choice, .help = "Model family; plugin: a model of your own (model.plugin).",
       .choices = model_names(), .required = true}, &M::name);
  add({.name = "plugin", .type = T::path, .help = "The library of your model, built with include/runner/plugin.hpp.",
       .required = true}, &M::plugin, plugin);
  add({.name = "options", .type = T::other, .help = "The options of the plug-in: numbers, strings, true, false, and lists.",
       .wanted = "a table such as { width = 64 }", .fits = not_a_table}, &M::options,
      {.family = "plugin", .schema = {{"type", "object"}}});
  add({.name = "n_layers", .type = T::integer, .help = "Transformer layers.", .minimum = 1, .maximum = 10000,
       .required = true}, &M::n_layers, layered);
  add({.name = "dim", .type = T::integer, .help = "Width of the hidden states.", .minimum = 1, .maximum = 1 << 20,
       .required = true}, &M::dim, layered);
  add({.name = "n_heads", .type = T::integer, .help = "Attention heads. Must divide dim.", .minimum = 1,
       .maximum = 1 << 16, .required = true}, &M::n_heads, layered);
  add({.name = "n_kv_heads", .type = T::integer,
       .help = "Key and value heads (grouped-query attention). Must divide n_heads. Default: n_heads.", .minimum = 1},
      &M::n_kv_heads, decoder);
  add({.name = "vocab_size", .type = T::integer, .help = "Number of tokens. Default: the tokenizer's.",
       .minimum = 1}, &M::vocab_size, of_tokens);
  add({.name = "max_seq_len", .type = T::integer, .help = "Longest sequence that the model can process, in tokens.",
       .minimum = 1, .required = true}, &M::max_seq_len, of_tokens);
  add({.name = "hidden_dim", .type = T::integer,
       .help = "Feed-forward width. Default: 4 x dim if the feed-forward is not gated (gpt, gpt_neox, bert, roberta, vit), otherwise Llama's rule.", .minimum = 1}, &M::hidden_dim, layered);
  add({.name = "multiple_of", .type = T::integer,
       .help = "Llama's rule rounds the feed-forward width up to a multiple of this.", .minimum = 1},
      &M::multiple_of, {.family = "decoder", .needs = {"model.hidden_dim"}});
  add({.name = "ffn_dim_multiplier", .type = T::number, .help = "Llama's rule: factor on the feed-forward width.",
       .minimum = 0, .above_minimum = true}, &M::ffn_dim_multiplier,
      {.family = "decoder", .needs = {"model.hidden_dim"}});
  add({.name = "norm_eps", .type = T::number, .help = "Epsilon of the norms. Default: the family's; 1e-5 for gpt and llama.", .minimum = 0,
       .above_minimum = true}, &M::norm_eps, layered);
  add.add({.name = "activation", .type = T::choice,
           .help = "gelu: exact (erf). gelu_tanh: tanh approximation, as in GPT-2. gpt, vit, bert and roberta have only these two. Default: the "
                   "family's.", .choices = {"gelu", "gelu_tanh", "silu", "relu"}}, {},
          [](M& model, const json& value) { model.activation = value.get<std::string>(); },
          [](const M& model) { return model.activation || model.name == "gpt" ? json(activation_of(model)) : json(); });
  add({.name = "bias", .type = T::boolean, .help = "Use biases in linear layers and norms."}, &M::bias, gpt_or_vit);
  add({.name = "tie_embeddings", .type = T::boolean,
       .help = "The output layer shares the embedding's weight. Default: the family's; true for gpt, false for llama."},
      &M::tie_embeddings, language);
  add({.name = "type_vocab_size", .type = T::integer, .help = "Rows of the table of token types.", .minimum = 1},
      &M::type_vocab_size, encoder);
  add({.name = "position_offset", .type = T::integer,
       .help = "Unused rows at the beginning of the table of positions. Default: 0 for bert, 2 for roberta.", .minimum = 0},
      &M::position_offset, encoder);
  add({.name = "dropout", .type = T::number, .help = "Probability of dropping an element.", .minimum = 0,
       .maximum = 0.999}, &M::dropout, of_this_project);
  add({.name = "init_std", .type = T::number, .help = "Standard deviation of initial weights.",
       .minimum = 0}, &M::init_std, layered);
  add({.name = "init_from", .type = T::path,
       .help = "Hugging Face folder (safetensors) or GGUF file with the initial weights."}, &M::init_from, of_this_project);
  add({.name = "frozen", .type = T::texts,
       .help = "Parameters that are not trained, as globs over their names: \"embedding.*\". They have no gradients and no "
               "optimizer state."}, &M::frozen);
  add({.name = "loss_chunk_tokens", .type = T::integer,
       .help = "Number of tokens whose logits are in memory at the same time. 0: all.",
       .minimum = 0}, &M::loss_chunk_tokens, language);
  add_row_models(add);
}

void add_data(std::vector<Key>& keys) {
  Adder add(keys, "data", &Recipe::data);
  using D = Recipe::Data;
  add({.name = "format", .type = T::choice,
       .help = "Format of the data. text: text files. bin: pre-tokenized files as nanoGPT and llm.c write them. jsonl: records as JSON, one "
               "per line or in one array. parquet: the same records as rows of Parquet files (scripts/setup --parquet). csv: the "
               "same as lines of cells below a line of column names. mlp reads csv and parquet as tables of numbers and categories. "
               "images: a folder with a folder of .jpg and .png files for each class. plugin: a library of your own (data.plugin).",
       .choices = {"text", "bin", "jsonl", "parquet", "csv", "images", "plugin"}, .required = true}, &D::format);
  add({.name = "train", .type = T::paths,
       .help = "Training files or patterns (data/*.txt). They are joined in this order; the matches of a pattern are "
               "sorted. Paths are relative to the recipe.", .required = true}, &D::train, {.needs = {"data.sources"}});
  add({.name = "validation", .type = T::paths, .help = "Validation files, or patterns."}, &D::validation);
  add({.name = "validation_fraction", .type = T::number,
       .help = "Share of the training data that is used for validation instead of files: of text the end, of tables and of texts "
               "with labels rows drawn at random, always the same.", .minimum = 0,
       .maximum = 0.9, .above_minimum = true}, &D::validation_fraction);
  add({.name = "tokenizer", .type = T::path,
       .help = "\"bytes\", a tokenizer.json, SentencePiece model, tiktoken or GGUF file, a folder with one of them, or "
               "\"sentencepiece\": a model that is trained once and cached."}, &D::tokenizer, {.tokens = true});
  add({.name = "tokenizer_vocab_size", .type = T::integer,
       .help = "Vocabulary size of a tokenizer that is trained (tokenizer = \"sentencepiece\").",
       .minimum = 300}, &D::tokenizer_vocab_size,
      {.needs = {"data.tokenizer", {"sentencepiece"}}, .tokens = true});
  add({.name = "token_dtype", .type = T::choice, .help = "Type of a token id in files of format \"bin\".",
       .choices = {"uint16", "uint32"}}, &D::token_dtype, {.needs = {"data.format", {"bin"}}});
  add({.name = "objective", .type = T::choice,
       .help = "What is predicted. next_token: each next token. masked_lm: tokens that are hidden. classification: the label of a "
               "text, or numbers, in the column that data.target names. Default: classification with data.target, masked_lm for "
               "bert and roberta, next_token for all others.",
       .choices = {"next_token", "masked_lm", "classification"},
       .spellings = {{"mlm", "masked_lm"}, {"clm", "next_token"}, {"causal_lm", "next_token"}, {"CAUSAL_LM", "next_token"},
                     {"sequence_classification", "classification"}, {"text_classification", "classification"},
                     {"text-classification", "classification"}, {"SEQ_CLS", "classification"}, {"seq_cls", "classification"},
                     {"regression", "classification"}}},
      &D::objective, {.quiet = true});
  add({.name = "mlm_probability", .type = T::number,
       .help = "Share of the tokens that are predicted. Of these, 80 % are replaced by the mask token and 10 % by random ones.",
       .minimum = 0, .maximum = 1, .above_minimum = true}, &D::mlm_probability,
      {.needs = {"data.objective", {"masked_lm"}}});
  add_records(add);
  add_row_data(add);
  const Facts plugin_data{.needs = {"data.format", {"plugin"}}};
  add({.name = "plugin", .type = T::path,
       .help = "The library that reads your data, built with include/runner/data_plugin.h."}, &D::plugin, plugin_data);
  add({.name = "options", .type = T::other, .help = "The options of the plug-in: numbers, strings, true, false, and lists.",
       .wanted = "a table such as { width = 64 }", .fits = not_a_table}, &D::options,
      {.quiet = true, .needs = plugin_data.needs, .schema = {{"type", "object"}}});
  add({.name = "plugin_gives", .type = T::choice,
       .help = "records: they are handled as those of jsonl. samples: tokens. rows: labels or numbers. auto: the library says it.",
       .choices = {"auto", "records", "samples", "rows"}}, &D::plugin_gives, {.quiet = true, .needs = plugin_data.needs});
  add({.name = "seq_len", .type = T::integer, .help = "Tokens in a sample. Default: model.max_seq_len.",
       .minimum = 1}, &D::seq_len, {.tokens = true});
  add({.name = "shuffle", .type = T::boolean,
       .help = "Shuffle samples each epoch. The order depends only on seed and epoch."}, &D::shuffle);
  add({.name = "order", .type = T::path,
       .help = "A Lua file that decides the order of training samples: its function sample(position, epoch, size, usual) returns the "
               "sample at a position of an epoch. All are numbers from 1 on."}, &D::order);
  add({.name = "drop_last", .type = T::boolean,
       .help = "Leave out the last batch of an epoch if it has fewer samples than a global batch."}, &D::drop_last);
  add({.name = "streaming", .type = T::boolean,
       .help = "The training begins as soon as the first part of the data is tokenised. The rest is tokenised in the background. The "
               "first epoch takes the parts in order, and shuffles the samples of each part (about 4 MiB). Later epochs shuffle all "
               "samples."},
      &D::streaming, {.needs = {"data.format", {"text", "jsonl", "parquet", "csv", "plugin"}}});
  add({.name = "prefetch", .type = T::integer, .help = "Number of steps whose batches are prepared in advance.",
       .minimum = 1, .maximum = 1024}, &D::prefetch);
  add.or_auto({.name = "num_workers",
               .help = "Threads of each rank that read samples; batches do not depend on it. 0: the training thread reads each batch "
                       "when it needs it. \"auto\": up to 4 for images and the samples of plug-ins, and 1 for others, which cost little.",
               .minimum = 0, .maximum = 256}, &D::num_workers, std::nullopt);
}

}  // namespace runner::keys
