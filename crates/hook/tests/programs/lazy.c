// A lazily bound library, called for the first time after start: the loader must not overwrite what we put there, and
// after stop what was never called must still bind itself.
#include "hook_api.h"

int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(beside(argv[0], "liblazy.so"), RTLD_LAZY);
    CHECK(library, "%s", dlerror());
    void *(*first)(size_t) = function(library, "first");
    void *(*second)(size_t, size_t) = function(library, "second");
    void *(*third)(void *, size_t) = function(library, "third");
    void (*last)(void *) = function(library, "last");
    load_hook();
    start();
    void **malloc_slot, **calloc_slot, **realloc_slot;
    CHECK(count_slots("liblazy.so", "malloc", PATCHED, &malloc_slot) == 1, "malloc");
    CHECK(count_slots("liblazy.so", "calloc", PATCHED, &calloc_slot) == 1, "calloc");
    CHECK(count_slots("liblazy.so", "realloc", PATCHED, &realloc_slot) == 1, "realloc");
    CHECK(count_slots("liblazy.so", NULL, PATCHED, NULL) == 4, "all four");
    void *ours = *malloc_slot;
    memintro_values before = totals();
    for (int i = 0; i < 10; i++) last(third(second(3, 100), 500));
    for (int i = 0; i < 10; i++) last(first(50));
    memintro_values after = totals();
    CHECK(after.allocations - before.allocations == 30, "%lu", after.allocations - before.allocations);
    CHECK(after.allocated_bytes - before.allocated_bytes == 8500, "%lu", after.allocated_bytes - before.allocated_bytes);
    CHECK(after.frees - before.frees == 30, "%lu", after.frees - before.frees);
    CHECK(*malloc_slot == ours, "the first call bound the slot to something else");
    stop();
    // What was a stub is one again, and binds itself now.
    CHECK(*malloc_slot != dlsym(RTLD_DEFAULT, "malloc"), "stop did not put back what was there");
    free(first(10));
    CHECK(*malloc_slot == dlsym(RTLD_DEFAULT, "malloc"), "the stub no longer binds");
    start();
    before = totals();
    last(first(7));
    after = totals();
    CHECK(after.allocated_bytes - before.allocated_bytes == 7, "%lu", after.allocated_bytes - before.allocated_bytes);
    stop();
    CHECK(*malloc_slot == dlsym(RTLD_DEFAULT, "malloc"), "a bound slot must be bound again");
    last(third(second(1, 1), 2));
    return 0;
}
