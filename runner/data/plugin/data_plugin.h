/* The interface of data plug-ins: sources of training data in a library that is built outside of this project, against this header
 * only. It is C, so the library can be written in C, C++, Rust or any other language with C functions. `cmake --install` puts it into
 * include/runner/data_plugin.h.
 *
 * A plug-in gives either records, which go through the same steps as the lines of a JSON lines file (layouts, chat templates,
 * tokenizer, packing, or the columns of a table), or samples, which are rows of a batch: fields of fixed type and shape. In a recipe:
 *
 *   [data]
 *   format = "plugin"
 *   plugin = "libmine.so"
 *   train = ["mine.db"]             # each path is opened once; files and folders are possible
 *   options = { table = "users" }   # what the plug-in asks for
 *
 * The library runs in processes of its own, and each process calls it from one thread. What a record or sample contains must depend
 * only on the path, the options and the index: then the order of samples, and a run that was killed and resumed, are exact.
 *
 * A function that fails writes the reason into `error`, a text of at most `error_size` bytes with its zero, and returns the value
 * that is stated for it. C++ functions may throw std::exception instead. */
#ifndef RUNNER_DATA_PLUGIN_H
#define RUNNER_DATA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of this header that an older plug-in does not survive. New members are added at the end of the structs,
 * whose sizes say which are there. */
#define RUNNER_DATA_VERSION 1u

enum {
  RUNNER_DATA_INT64 = 1,
  RUNNER_DATA_INT32 = 2,
  RUNNER_DATA_UINT8 = 3,
  RUNNER_DATA_BOOL = 4,
  RUNNER_DATA_FLOAT32 = 5
};

/* A field of a sample. Language models read `inputs` and `targets`, both int64 [seq_len]; mlp reads `features`, float32 [N], and vit
 * and resnet `pixels`, float32 [3, S, S], each with `labels`, int64 [], or `targets`, float32 [N]. A target of -100, or NaN, does not
 * count in the loss. The model of a plug-in reads the fields that it declares. */
typedef struct runner_data_field {
  const char* name;
  uint32_t type;        /* RUNNER_DATA_... */
  uint32_t dimensions;  /* elements of `shape` */
  const int64_t* shape; /* of one sample, row-major; 0 dimensions: a single number */
  int64_t
      classes; /* integers: 0 <= value < classes, or -100 in targets and labels; every value is checked. 0: not stated */
} runner_data_field;

/* What is opened. The texts are valid until open() returns. */
typedef struct runner_data_request {
  uint32_t size;    /* bytes of this struct */
  const char* path; /* one of data.train or data.validation, absolute */
  int64_t seq_len;  /* tokens of a sample, for fields(); 1 for models without tokens. Records must not depend on it */
  /* The value of data.options.NAME: texts as they are, other values as JSON. NULL: not given. The run does not start if an option was
   * given that the plug-in has not asked for. */
  const char* (*option)(const struct runner_data_request* request, const char* name);
} runner_data_request;

/* What a library exports. Functions that are optional may be NULL. */
typedef struct runner_data_plugin {
  uint32_t version; /* RUNNER_DATA_VERSION; first in every version */
  uint32_t size;    /* sizeof(runner_data_plugin) */

  /* Opens a path. NULL: it failed. */
  void* (*open)(const runner_data_request* request, char* error, size_t error_size);
  void (*close)(void* data); /* optional */
  /* How many records or samples there are, always the same number. -1: it failed. */
  int64_t (*count)(void* data, char* error, size_t error_size);

  /* Records. Writes record `index`, 0 <= index < count, to `memory` if it has at most `size` bytes, and returns its bytes; if they are
   * more than `size`, it is called again with that much memory. -1: it failed. A record is a JSON object in UTF-8 without a zero at its
   * end, {"text": "..."}; with records_are_text it is the text itself. */
  int64_t (*record)(void* data, int64_t index, char* memory, size_t size, char* error, size_t error_size);
  uint32_t records_are_text;

  /* Samples, instead of records. The fields, always the same, valid until close(); `count` is their number. NULL: it failed. */
  const runner_data_field* (*fields)(void* data, uint32_t* count, char* error, size_t error_size);
  /* Writes sample `index`: memory[f] has the bytes of field f, all 0, at a multiple of 64. 0: done; anything else: it failed. */
  int (*sample)(void* data, int64_t index, void* const* memory, char* error, size_t error_size);
  /* Optional: how many targets of a sample count in the loss, at least 1. Without it, all do: the elements of integer `targets`, or 1. */
  int64_t (*weight)(void* data, int64_t index);
} runner_data_plugin;

/* The one function that a library must export. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const runner_data_plugin*
runner_data(void);

#ifdef __cplusplus
}
#endif

#endif
