// Bounds of readers of files from elsewhere. Each bound is far above what real files have, and refuses those that would take memory or
// time without end. A reader's header names its bounds.
#pragma once
#include <cstddef>
#include <cstdint>

namespace runner {

constexpr size_t json_depth_max = 500;  ///< objects and lists inside each other, also values of chat templates

constexpr size_t template_bytes_max = 1 << 20;            ///< a chat template
constexpr size_t template_output_bytes_max = 64 << 20;    ///< what it prints
constexpr size_t template_value_bytes_max = 64 << 20;     ///< one text or list
constexpr int64_t template_values_bytes_max = 512 << 20;  ///< all values that live
constexpr int64_t template_steps_max = 50'000'000;        ///< statements, expressions, and 64 bytes read or written

constexpr size_t tokenizer_bytes_max = 256 << 20;  ///< a file: tokenizer.json, a SentencePiece model or a tiktoken file
constexpr size_t token_bytes_max = 4096;           ///< one token: tries and merges take time by the square of it
constexpr size_t charsmap_text_bytes_max = 256;    ///< what one character becomes
constexpr size_t pattern_bytes_max = 65536;        ///< a regular expression
constexpr uint32_t pattern_steps_max = 10'000'000;  ///< of a match that begins at one place
constexpr double pattern_seconds_max = 1;  ///< of processor time for one text, besides those for each of its bytes
constexpr double pattern_seconds_per_byte = 1e-5;  ///< real tokenizers need about a hundredth of it

constexpr size_t json_record_bytes_max = 64 << 20;  ///< a line or an element: its tokens take about 40 times the memory

constexpr int parquet_depth_max = 100;      ///< columns inside each other
constexpr int parquet_fields_max = 32'768;  ///< columns, and the groups that they are in
constexpr int64_t parquet_group_rows_max = int64_t{1} << 28;
constexpr int64_t parquet_group_bytes_max = int64_t{64} << 30;  ///< a row group without compression; its rows as JSON
constexpr int64_t parquet_reader_bytes_max = int64_t{2} << 30;  ///< what a reader has unpacked and not yet given back
constexpr int64_t parquet_row_bytes_max = int64_t{1} << 30;     ///< a row as JSON

constexpr int64_t image_pixels_max = 178'956'970;                 ///< as in Pillow
constexpr int64_t images_in_memory_bytes_max = int64_t{2} << 30;  ///< all images that are decoded at the same time

constexpr uint64_t safetensors_header_bytes_max = 100'000'000;  ///< as in the reference implementation
constexpr uint64_t gguf_metadata_bytes_max = 1024 << 20;
constexpr uint64_t gguf_elements_max = uint64_t{1} << 24;  ///< of all lists in the metadata
constexpr int gguf_nesting_max = 4;                        ///< lists inside each other

}  // namespace runner
