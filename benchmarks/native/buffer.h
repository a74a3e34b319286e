/* What fake_llm and load share: growing buffers, and the clock that tokens carry. */
#ifndef BUFFER_H
#define BUFFER_H
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKEN_MARK " @"
#define TOKEN_DIGITS 10
#define TOKEN_MODULUS 10000000000LL

typedef struct {
    char *bytes;
    size_t length, capacity;
} Buffer;

static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static inline void *resized(void *memory, size_t size) {
    void *result = realloc(memory, size);
    if (!result) abort();
    return result;
}

static inline void reserve(Buffer *b, size_t more) {
    if (b->length + more <= b->capacity) return;
    size_t capacity = b->capacity ? b->capacity : 4096;
    while (capacity < b->length + more) capacity *= 2;
    b->bytes = resized(b->bytes, capacity);
    b->capacity = capacity;
}

static inline void put(Buffer *b, const char *bytes, size_t length) {
    reserve(b, length);
    memcpy(b->bytes + b->length, bytes, length);
    b->length += length;
}

static inline void take(Buffer *b, size_t length) {
    b->length -= length;
    memmove(b->bytes, b->bytes + length, b->length);
}

#endif
