// What the programs here share: a hook that is loaded into a running process, and assertions that say what was wrong.
#ifndef HOOK_API_H
#define HOOK_API_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memintro_hook_api.h"

enum { PATCHED = MEMINTRO_PATCHED, FOREIGN, LOST, MALFORMED, REFUSED };
enum { OK = MEMINTRO_OK, UNCHANGED = MEMINTRO_UNCHANGED };
enum { FULL = MEMINTRO_FULL };

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const memintro_hook_api *hook;

// MEMINTRO_HOOK names the library; it is loaded as an extension would load it.
static inline void load_hook(void) {
    void *library = dlopen(getenv("MEMINTRO_HOOK"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "%s", dlerror());
    hook = dlsym(library, "memintro_hook_api");
    CHECK(hook, "no table of functions");
    CHECK(hook->version == MEMINTRO_VERSION && hook->size == sizeof *hook, "another version or size");
    CHECK(hook->origin() == 1, "the hook thinks it was preloaded");
}

static inline void start(void) {
    int32_t status = hook->start(&(memintro_start_options){.mode = FULL});
    CHECK(status == OK, "start answered %d", status);
}

static inline void stop(void) {
    int32_t status = hook->stop();
    CHECK(status == OK, "stop answered %d", status);
}

static inline memintro_values totals(void) {
    memintro_figures figures;
    hook->totals(&figures);
    return memintro_values_of(&figures);
}

struct search {
    const char *module, *symbol;
    uint32_t state, count;
    uint64_t slot;
};

static inline void search_one(void *context, const memintro_patch *entry) {
    struct search *search = context;
    const char *file = strrchr(entry->module, '/');
    if (strncmp(file ? file + 1 : entry->module, search->module, strlen(search->module))) return;
    if (search->symbol && (!entry->symbol || strcmp(entry->symbol, search->symbol))) return;
    if (entry->state != search->state) return;
    search->count++;
    search->slot = entry->slot;
}

// How many slots of the modules whose file begins with `module` are in this state; the last one's address in `slot`.
static inline uint32_t count_slots(const char *module, const char *symbol, uint32_t state, void ***slot) {
    struct search search = {module, symbol, state, 0, 0};
    hook->patches(&search, search_one);
    if (slot) *slot = (void **)(uintptr_t)search.slot;
    return search.count;
}

// The program's own file, in a folder that also holds what it loads.
static inline const char *beside(const char *program, const char *file) {
    static char path[4096];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - program) : 1, slash ? program : ".", file);
    return path;
}

static inline void *function(void *library, const char *name) {
    void *address = dlsym(library, name);
    CHECK(address, "%s", dlerror());
    return address;
}

#endif
