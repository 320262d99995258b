/* Counts allocations of a process tree: preload it with LD_PRELOAD and PYTHONMALLOC=malloc.
 *
 * BENCH_ALLOC_FILE names a file of at least 16 bytes; two 64-bit counters in it grow: calls, and bytes asked for.
 * Frees are not counted: the question is how much work the allocator gets, not how much memory is held. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static uint64_t unused[2], *counters = unused;

static inline void count(size_t bytes) {
    __atomic_fetch_add(&counters[0], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counters[1], bytes, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("BENCH_ALLOC_FILE");
    int file = path ? open(path, O_RDWR) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map != MAP_FAILED) counters = map;
}

void *malloc(size_t size) { count(size); return __libc_malloc(size); }
void *calloc(size_t number, size_t size) { count(number * size); return __libc_calloc(number, size); }
void *realloc(void *old, size_t size) { count(size); return __libc_realloc(old, size); }
void *memalign(size_t align, size_t size) { count(size); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { count(size); return __libc_memalign(align, size); }

int posix_memalign(void **out, size_t align, size_t size) {
    count(size);
    *out = __libc_memalign(align, size);
    return *out ? 0 : 12; /* ENOMEM */
}
