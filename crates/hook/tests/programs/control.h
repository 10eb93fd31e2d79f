// memintro's control table as C sees it (crates/abi), and what the programs here share: a hook that is loaded into a
// running process, and assertions that say what was wrong.
#ifndef CONTROL_H
#define CONTROL_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATCHED, FOREIGN, LOST, MALFORMED, REFUSED };
enum { OK = 0, UNCHANGED = 1 };
enum { FULL = 1 };

struct options {
    uint32_t mode, max_sites;
    uint64_t max_tracker_bytes;
};

struct figures {
    uint64_t allocated_bytes, freed_bytes, allocations, frees, missed_frees, tracker_bytes, dropped, sites, generation;
};

struct patch_entry {
    const char *module, *symbol;
    uint64_t slot, value;
    uint32_t state;
};

struct control {
    uint32_t version, size;
    uint32_t (*origin)(void);
    uint32_t (*mode)(void);
    int32_t (*start)(const struct options *);
    int32_t (*stop)(void);
    int32_t (*set_vm)(const void *);
    uint32_t (*untracked_enter)(void);
    uint32_t (*untracked_leave)(void);
    int32_t (*mark)(void);
    int32_t (*clear)(void);
    int32_t (*reset)(void);
    void (*totals)(struct figures *);
    void (*thread_totals)(void *);
    void (*sites)(void *, void (*)(void *, const void *));
    void (*blocks)(uint32_t, uint32_t, void *, void (*)(void *, const void *));
    int32_t (*refresh)(void);
    void (*patches)(void *, void (*)(void *, const struct patch_entry *));
};

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static struct control *hook;

// MEMINTRO_HOOK names the library; it is loaded as an extension would load it.
static inline void load_hook(void) {
    void *library = dlopen(getenv("MEMINTRO_HOOK"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "%s", dlerror());
    hook = dlsym(library, "memintro_control");
    CHECK(hook, "no control table");
    CHECK(hook->origin() == 1, "the hook thinks it was preloaded");
}

static inline void start(void) {
    int32_t status = hook->start(&(struct options){.mode = FULL});
    CHECK(status == OK, "start answered %d", status);
}

static inline void stop(void) {
    int32_t status = hook->stop();
    CHECK(status == OK, "stop answered %d", status);
}

static inline struct figures totals(void) {
    struct figures figures;
    hook->totals(&figures);
    return figures;
}

struct search {
    const char *module, *symbol;
    uint32_t state, count;
    uint64_t slot;
};

static inline void search_one(void *context, const struct patch_entry *entry) {
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
