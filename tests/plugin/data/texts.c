/* A data source of one's own in a library: texts in a binary file, each behind its length in four bytes. */
#include <errno.h>
#include <runner/data_plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct texts {
  FILE* file;
  int64_t count;
  long* begins; /* of each text, and the end of the file */
};

static void close_texts(void* data) {
  struct texts* texts = data;
  if (texts->file) fclose(texts->file);
  free(texts->begins);
  free(texts);
}

static void* open_texts(const runner_data_request* request, char* error, size_t error_size) {
  const char* most = request->option(request, "most"); /* how many texts are used; not given: all */
  struct texts* texts = calloc(1, sizeof *texts);
  uint32_t length;
  long at = 0, end;
  if (!(texts->file = fopen(request->path, "rb"))) {
    snprintf(error, error_size, "cannot open %s: %s", request->path, strerror(errno));
    close_texts(texts);
    return NULL;
  }
  fseek(texts->file, 0, SEEK_END);
  end = ftell(texts->file);
  while (at < end && (!most || texts->count < atol(most))) {
    fseek(texts->file, at, SEEK_SET);
    if (fread(&length, sizeof length, 1, texts->file) != 1 || at + 4 + (long)length > end) {
      snprintf(error, error_size, "%s is cut off behind text %ld", request->path, (long)texts->count);
      close_texts(texts);
      return NULL;
    }
    texts->begins = realloc(texts->begins, sizeof(long) * (size_t)(texts->count + 2));
    texts->begins[texts->count++] = at + 4;
    at += 4 + (long)length;
    texts->begins[texts->count] = at + 4;
  }
  return texts;
}

static int64_t count_texts(void* data, char* error, size_t error_size) {
  (void)error, (void)error_size;
  return ((struct texts*)data)->count;
}

static int64_t read_text(void* data, int64_t index, char* memory, size_t size, char* error, size_t error_size) {
  struct texts* texts = data;
  const size_t bytes = (size_t)(texts->begins[index + 1] - 4 - texts->begins[index]);
  if (bytes > size) return (int64_t)bytes; /* it is called again with enough memory */
  fseek(texts->file, texts->begins[index], SEEK_SET);
  if (fread(memory, 1, bytes, texts->file) == bytes) return (int64_t)bytes;
  snprintf(error, error_size, "the file ends within this text");
  return -1;
}

const runner_data_plugin* runner_data(void) {
  static const runner_data_plugin plugin = {.version = RUNNER_DATA_VERSION,
                                            .size = sizeof(runner_data_plugin),
                                            .open = open_texts,
                                            .close = close_texts,
                                            .count = count_texts,
                                            .record = read_text,
                                            .records_are_text = 1};
  return &plugin;
}
