// Slots that were ours and are not any more: found, counted, and ours again if they hold the real function.
#include "hook_api.h"

static void *own_calloc(size_t count, size_t size) { (void)count; (void)size; return NULL; }

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    load_hook();
    void *real_malloc = dlsym(RTLD_DEFAULT, "malloc");
    start();
    void **malloc_slot, **calloc_slot;
    CHECK(count_slots("liblazy.so", "malloc", PATCHED, &malloc_slot) == 1, "malloc");
    CHECK(count_slots("liblazy.so", "calloc", PATCHED, &calloc_slot) == 1, "calloc");
    void *ours = *malloc_slot;
    *malloc_slot = real_malloc;
    *calloc_slot = (void *)own_calloc;
    CHECK(hook->refresh() == OK, "refresh");
    CHECK(*malloc_slot == ours, "a slot with the real function was not taken again");
    CHECK(*calloc_slot == (void *)own_calloc, "somebody else's function was overwritten");
    CHECK(count_slots("liblazy.so", "malloc", PATCHED, NULL) == 1, "malloc");
    CHECK(count_slots("liblazy.so", "calloc", LOST, NULL) == 1, "calloc");
    hook->refresh();
    CHECK(count_slots("liblazy.so", "calloc", LOST, NULL) == 1, "lost once, lost until somebody changes it");
    *calloc_slot = dlsym(RTLD_DEFAULT, "calloc");
    hook->refresh();
    CHECK(count_slots("liblazy.so", "calloc", PATCHED, NULL) == 1, "given back to us");
    *calloc_slot = (void *)own_calloc;
    stop();
    CHECK(*calloc_slot == (void *)own_calloc, "stop overwrote somebody else's function");
    CHECK(*malloc_slot != ours, "stop left our function");
    return 0;
}
